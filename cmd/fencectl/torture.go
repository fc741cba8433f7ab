package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/internal/localserver"
)

const (
	tortureWorkerCommand = "torture-worker"
	tortureDefault       = 60 // seconds
)

func newTorture(a *app) *cobra.Command {
	var seconds int
	var seed, faults, out string
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Torture the guards and see whether a history breaks",
		Long: `Run worker processes on real servers through pauses, kills, cut links, lost replies, a
Redis that forgets and a Postgres that crashes, and check afterwards by independent
means that no update was lost and that every transaction came in the order of its
fence. The same faults hit workers that lack a part of the protection: each of these
controls must lose an update, or the run is not to be trusted.

It needs nothing but the servers' programs on this machine, and starts private ones.
With --redis and --postgres (or FENCING_REDIS_URL, FENCING_POSTGRES_URL, but not
DATABASE_URL and REDIS_URL) it uses yours: under random names, removing what it made, without a
FLUSHALL, a restart or whatever else others could feel.

Faults: pause, kill, cut, reply, forget, terminate, and on private servers flush,
snapshot, promote, crash, clock. Fewer than all are for narrowing down what was found:
they will hardly break every control. A seed repeats the choices of an earlier run,
though not its timing.

It goes on for up to a minute longer while a control was not caught or a fault not seen.
Exit code 0 if every guarded history is clean, 1 if one is not, 2 if the run shows
nothing, because of such a control or fault.`,
		Example: `  fencectl torture --seconds 60
  fencectl torture --seed 42 --faults pause,kill --out torture
  fencectl torture --postgres postgres://app@db/shop --redis redis://cache --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("schema") {
				return errors.New("--schema: the torture makes a fence schema of its own, under a random name")
			}
			return a.torture(cmd, seconds, seed, faults, out)
		},
	}
	cmd.Flags().IntVar(&seconds, "seconds", tortureDefault, "`number` of seconds, at least, in which operations are begun")
	cmd.Flags().StringVar(&seed, "seed", "", "`number` that the choices are drawn from (default random)")
	cmd.Flags().StringVar(&faults, "faults", "all", "`list` of faults, with commas, or all, or none")
	cmd.Flags().StringVar(&out, "out", "", "`folder` for a picture of the history; if it breaks, by default fencectl-torture-SEED")
	// The global flag has DATABASE_URL for a default too.
	cmd.Flags().Var(&a.postgres, "postgres", "`URL` of the Postgres database (default $FENCING_POSTGRES_URL)")
	cmd.Flags().Var(&a.redis, "redis", "`URL` of the Redis server (default $FENCING_REDIS_URL)")
	return cmd
}

func (a *app) torture(cmd *cobra.Command, seconds int, seed, faults, out string) error {
	o := torture.Options{Length: time.Duration(seconds) * time.Second, Seed: rand.Uint64()}
	var err error
	if o.Length < torture.MinLength || o.Length > torture.MaxLength {
		return fmt.Errorf("--seconds %d: not from %g to %g", seconds, torture.MinLength.Seconds(), torture.MaxLength.Seconds())
	}
	if seed != "" {
		if o.Seed, err = strconv.ParseUint(seed, 10, 64); err != nil {
			return fmt.Errorf("--seed %q: no whole number from 0 to 18446744073709551615", seed)
		}
	}
	if o.Faults, err = torture.ParseFaults(faults); err != nil {
		return fmt.Errorf("--faults: %w", err)
	}
	// DATABASE_URL belongs to an application: a torture is not what it was set for.
	if s := setting("--postgres", a.postgres, postgresVariables[:1]); s.Value != "" {
		if o.Postgres, err = target.ParsePostgres(s); err != nil {
			return err
		}
	}
	if s := setting("--redis", a.redis, redisVariables[:1]); s.Value != "" {
		if o.Redis, err = target.ParseRedis(s); err != nil {
			return err
		}
	}
	const socket = "%s: %s is a socket, and the torture cuts links: name the server by host and port"
	if o.Postgres != nil && strings.HasPrefix(o.Postgres.Config.ConnConfig.Host, "/") {
		return fmt.Errorf(socket, o.Postgres.Source, o.Postgres)
	}
	if o.Redis != nil && o.Redis.Options.Network == "unix" {
		return fmt.Errorf(socket, o.Redis.Source, o.Redis)
	}
	if out != "" {
		if err := os.MkdirAll(out, 0o755); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("torture: this program cannot start itself again as a worker: %w", err)
	}
	o.Worker = []string{program, tortureWorkerCommand}
	progress, stop := a.progress()
	o.Progress = progress

	result, err := torture.Run(cmd.Context(), o)
	stop()
	switch {
	case errors.Is(err, localserver.ErrNotInstalled):
		return fmt.Errorf("torture: %w, or name servers of yours with --redis and --postgres", err)
	case err != nil:
		return fmt.Errorf("%wtorture: seed %d: %w", &silent{errServer}, o.Seed, err)
	}
	if a.json {
		err = a.printJSON(result)
	} else {
		err = result.Write(a.stdout)
	}
	if err != nil {
		return err
	}
	if err := a.saveTorture(result, out); err != nil {
		return err
	}
	switch {
	case !result.Clean:
		return errAnswer
	case !result.Trustworthy:
		return errUntrusted
	}
	return nil
}

// saveTorture keeps what may be looked at: where it was asked for, or what a broken
// history has to be understood from.
func (a *app) saveTorture(result *torture.Result, out string) error {
	if out == "" {
		if result.Clean {
			return nil
		}
		out = fmt.Sprintf("fencectl-torture-%d", result.Seed)
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
	}
	picture, err := result.Save(out)
	if err != nil {
		return fmt.Errorf("torture: keep the history: %w", err)
	}
	_, _ = fmt.Fprintln(a.stderr, "The history can be seen in", picture)
	return nil
}

// progress returns what shows how far it is: a line that is written over on a
// terminal, else one as soon as there is something to say and every ten seconds.
func (a *app) progress() (show func(torture.Status), stop func()) {
	terminal := isTerminal(a.stderr)
	last := time.Duration(-1)
	line := func(s torture.Status) string {
		return fmt.Sprintf("%s %.0fs of %gs: %d operations, %d committed, %d refused, %d faults", s.Phase, s.Elapsed.Seconds(), s.Length.Seconds(), s.Operations, s.Committed, s.Refused, s.Faults)
	}
	show = func(s torture.Status) {
		switch {
		case terminal:
			_, _ = fmt.Fprintf(a.stderr, "\r\x1b[K%s", line(s)) // for who waits; nothing depends on it
		case last < 0 && s.Operations > 0, last >= 0 && s.Elapsed-last >= 10*time.Second:
			last = s.Elapsed
			_, _ = fmt.Fprintln(a.stderr, line(s))
		}
	}
	return show, func() {
		if terminal {
			_, _ = fmt.Fprint(a.stderr, "\r\x1b[K")
		}
	}
}

// newTortureWorker is the other end of the torture.
func newTortureWorker(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    tortureWorkerCommand,
		Short:  "A worker of the torture",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return workload.Work(cmd.Context(), a.stdin, a.stdout)
		},
	}
}
