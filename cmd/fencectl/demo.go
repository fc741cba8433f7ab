package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/demo"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/internal/localserver"
)

func newDemo(a *app) *cobra.Command {
	var fast bool
	var store string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play a lost update, and the same history refused",
		Long: `Play a lost update under a distributed lock, the same history with a fence, and a
Redis that forgets everything. It takes about ten seconds and needs nothing: Redis
runs in this process, Postgres as a private server from the machine's own
binaries. Where there are none, SQLite takes its place, in a file of the demo's
own; --store sqlite asks for that.

With --redis or --postgres (or FENCING_REDIS_URL, FENCING_POSTGRES_URL, but not
DATABASE_URL and REDIS_URL) it plays on your servers: under random names, removing only what it
made, and without a FLUSHALL.

Exit code 1 if a guarded history is not clean, or if the unguarded one was.`,
		Example: `  fencectl demo
  fencectl demo --postgres postgres://app@db/shop --redis redis://cache
  FENCING_POSTGRES_URL=postgres://app@db/shop FENCING_REDIS_URL=redis://cache make demo`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("schema") {
				return errors.New("--schema: the demo makes a fence schema of its own, under a random name")
			}
			return a.demo(cmd, store, fast)
		},
	}
	cmd.Flags().StringVar(&store, "store", "", "`database` that has the stock: postgres or sqlite (default postgres if it can be had)")
	_ = cmd.RegisterFlagCompletionFunc("store", cobra.FixedCompletions([]string{string(demo.Postgres), string(demo.SQLite)}, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
	// The global flag has DATABASE_URL for a default too.
	cmd.Flags().Var(&a.postgres, "postgres", "`URL` of the Postgres database (default $FENCING_POSTGRES_URL)")
	cmd.Flags().Var(&a.redis, "redis", "`URL` of the Redis server (default $FENCING_REDIS_URL)")
	cmd.Flags().BoolVar(&fast, "fast", false, "leave no time to read along")
	return cmd
}

func (a *app) demo(cmd *cobra.Command, store string, fast bool) error {
	o := demo.Options{Fast: fast}
	var err error
	if o.Store, err = demo.ParseStore(store); err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	if o.Store == demo.SQLite && a.postgres.value != "" {
		return errors.New("--store sqlite and --postgres name two stores: leave one out")
	}
	// DATABASE_URL and REDIS_URL belong to an application: a demo is not what they were set for.
	if s := setting("--postgres", a.postgres, postgresVariables[:1]); s.Value != "" && o.Store != demo.SQLite {
		if o.Postgres, err = target.ParsePostgres(s); err != nil {
			return err
		}
	}
	if s := setting("--redis", a.redis, redisVariables[:1]); s.Value != "" {
		if o.Redis, err = target.ParseRedis(s); err != nil {
			return err
		}
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: this program cannot start itself again as a worker: %w", err)
	}
	o.Worker = []string{program, workerCommand}

	out := demo.NewTimeline(a.stdout, style(a.stdout))
	if a.json {
		out = demo.NewJSONLines(a.stdout)
	}
	if o.Postgres == nil && o.Store != demo.SQLite && isTerminal(a.stderr) {
		_, _ = fmt.Fprintln(a.stderr, "Starting a private Postgres server ...") // for who waits; nothing depends on it
	}
	verdict, err := demo.Run(cmd.Context(), o, out)
	switch {
	case errors.Is(err, localserver.ErrNotInstalled):
		return fmt.Errorf("demo: %w, name a server of yours with --postgres postgres://user@host:port/database, or take --store sqlite", err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("demo: %w; its files are made in %s: name another directory in TMPDIR", err, os.TempDir())
	case err != nil:
		return fmt.Errorf("demo: %w", err)
	case !verdict.OK:
		return errAnswer
	}
	return nil
}

const workerCommand = "demo-worker"

// newDemoWorker is the other end of the demo.
func newDemoWorker(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    workerCommand,
		Short:  "A worker of the demo",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Work(cmd.Context(), a.stdin, a.stdout)
		},
	}
}

// isTerminal reports whether one end of a stream is a terminal. (/dev/null is a character
// device too.)
func isTerminal(end any) bool {
	f, ok := end.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// style is colourful on a terminal that can show it and is allowed to: no-color.org.
func style(w io.Writer) demo.Style {
	if !isTerminal(w) {
		return demo.Style{}
	}
	const columns = 80 // what every terminal has
	return demo.Style{Width: columns, Color: os.Getenv("NO_COLOR") == "" && cmp.Or(os.Getenv("TERM"), "dumb") != "dumb"}
}
