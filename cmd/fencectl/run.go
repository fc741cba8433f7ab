package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/pglock"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/pgguard"
)

// A command is what "fencectl run" was asked for.
type command struct {
	resource   string
	args       []string
	keys       redisFlags
	ttl, grace time.Duration
	wait       time.Duration
	unfenced   bool
}

func newRun(a *app) *cobra.Command {
	c := command{ttl: 30 * time.Second, grace: 10 * time.Second, wait: -1}
	cmd := &cobra.Command{
		Use:   "run RESOURCE -- COMMAND [ARG]...",
		Short: "Run a command under a lock and its fence",
		Long: `Run a command while RESOURCE is locked: in Redis (--redis), else in Postgres. Name
what the other holders lock in: they do not wait for a lock that is elsewhere, though
their writes are refused. The fence is raised in the database before the command
starts, which finds it in

  FENCING_FENCE                     the fence as text, for a program that uses this library
  FENCING_RESOURCE, FENCING_TOKEN,
  FENCING_NONCE, FENCING_HOLDER     its parts, for SELECT fencing.enter(resource, token, nonce)
  FENCING_FENCES                    all fences that it runs under, one run inside of another

A run of a resource that it is under already joins the lock, with the same fence; if that is
not held any more, it fails at once.

The lock is renewed while the command runs. If it is lost, the command gets a
SIGTERM, and after --grace a SIGKILL; whatever it still tries to write is refused
by the database, if it has entered the fence. An interrupt ends it in the same way, with
the lock kept meanwhile; the exit code is then 130, unless the command takes the signal
and exits with a code of its own. If fencectl is killed, the command goes on, and the lock ends
within --ttl.

The exit code is that of the command. Otherwise 1 if the lock was lost, or held by
another for all of --wait, and those of fencectl; 126 or 127 if the command cannot
be run.`,
		Example: `  fencectl run nightly-report --postgres postgres://app@db/shop -- ./report.sh
  fencectl run inventory:sku-42 --wait 0s -- psql -f sell.sql
where sell.sql begins with (psql 15 or later; -v n=$FENCING_NONCE would show everybody
on the machine the nonce)
  \getenv r FENCING_RESOURCE
  \getenv t FENCING_TOKEN
  \getenv n FENCING_NONCE
  BEGIN; SELECT fencing.enter(:'r', :'t', :'n');`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || cmd.ArgsLenAtDash() != 1 { // without a dash the command's flags would be ours
				return errors.New("run takes a resource and, after --, a command: fencectl run RESOURCE -- COMMAND [ARG]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c.resource, c.args = args[0], args[1:]
			if err := c.check(a); err != nil {
				return err
			}
			return a.runCommand(cmd.Context(), &c)
		},
	}
	c.keys.add(a, cmd)
	flags := cmd.Flags()
	flags.DurationVar(&c.ttl, "ttl", c.ttl, "how long others wait if this machine dies")
	flags.DurationVar(&c.wait, "wait", c.wait, "how long to wait for the lock; 0s for not at all, below 0 for ever")
	flags.DurationVar(&c.grace, "grace", c.grace, "how long the command has to end after a SIGTERM")
	flags.BoolVar(&c.unfenced, "unfenced", false, "lock only: no database will refuse a late write")
	return cmd
}

func (c *command) check(a *app) error {
	if err := notAnAddress("run", c.resource); err != nil {
		return err
	}
	if err := (guard.Fence{Resource: c.resource, Token: 1, Nonce: "n"}).Validate(); err != nil {
		return err
	}
	if c.grace < 0 {
		return fmt.Errorf("--grace: %v is below 0", c.grace)
	}
	switch redis, postgres := a.redisSetting().Value != "", a.postgresSetting().Value != ""; {
	case c.unfenced && !redis:
		return errors.New("--unfenced needs --redis, FENCING_REDIS_URL or REDIS_URL")
	case !c.unfenced && !postgres:
		return errors.New("run: no database whose fence to raise; name one with --postgres, or in FENCING_POSTGRES_URL or DATABASE_URL, or lock only with --unfenced")
	}
	return c.keys.check()
}

func (a *app) runCommand(ctx context.Context, c *command) error {
	program, err := exec.LookPath(c.args[0])
	if err != nil {
		code := 127
		if errors.Is(err, os.ErrPermission) {
			code = 126
		}
		return &exited{code, fmt.Errorf("run: %w", err)}
	}
	locker, done, err := a.openLocker(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	// It is the parent of the lease, which outlives the wait and, while the command ends
	// itself, the interrupt.
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	stillWaiting := context.AfterFunc(ctx, giveUp)
	lease, err := c.take(waiting, locker)
	if err != nil {
		return err
	}
	stillWaiting()
	ranErr := a.runUnder(ctx, lease, c, program)
	switch err := lease.Release(ctx); {
	case errors.Is(err, lock.ErrLost):
		return &exited{exitAnswer, fmt.Errorf("run: %w", err)}
	case ranErr != nil:
		return ranErr
	case err != nil:
		return fmt.Errorf("%wrun: the command is done: %w", &silent{errServer}, err)
	}
	return nil
}

// openLocker connects to what the command is locked and fenced by.
func (a *app) openLocker(ctx context.Context, c *command) (_ *lock.Locker, done func(), err error) {
	var closers []func()
	done = func() {
		for i := len(closers) - 1; i >= 0; i-- {
			closers[i]()
		}
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	options := []lock.Option{lock.WithTTL(c.ttl), lock.WithMaxWait(max(c.wait, 0))}
	var backend lock.Backend
	if a.redisSetting().Value != "" {
		k, err := a.openRedis(ctx)
		if err != nil {
			return nil, done, err
		}
		closers = append(closers, func() { _ = k.client.Close() })
		if backend, err = redislock.New(k.client, redislock.WithPrefix(c.keys.scheme.Prefix), redislock.WithShards(c.keys.scheme.Shards)); err != nil {
			return nil, done, err
		}
	}
	if !c.unfenced {
		address, err := target.ParsePostgres(a.postgresSetting())
		if err != nil {
			return nil, done, err
		}
		pool, err := address.Pool(ctx, 4)
		if err != nil {
			return nil, done, err
		}
		closers = append(closers, pool.Close)
		store, err := pgguard.New(pool, pgguard.WithSchema(a.schema))
		if err != nil {
			return nil, done, err
		}
		options = append(options, lock.WithGuards(store))
		if backend == nil {
			if backend, err = pglock.New(pool, pglock.WithSchema(a.schema)); err != nil {
				return nil, done, err
			}
		}
	}
	locker, err := lock.New(backend, options...)
	if err != nil {
		return nil, done, err
	}
	closers = append(closers, func() { _ = locker.Close() })
	return locker, done, nil
}

// take joins the lock that this runs under, if it does, or waits for one of its own.
func (c *command) take(ctx context.Context, locker *lock.Locker) (*lock.Lease, error) {
	f, found, err := enclosing(c.resource)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return c.acquire(ctx, locker)
	}
	lease, err := locker.Join(ctx, f)
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, lock.ErrLost), errors.Is(err, guard.ErrStale):
		return nil, &exited{exitAnswer, fmt.Errorf("run: %w: $%s says that this runs under %q with token %d, and here that lock is not held any more; for a lock of its own, run it with \"env -u %s -u %s\"",
			err, allFences, f.Resource, f.Token, allFences, oneFence)}
	}
	return nil, refused(fmt.Errorf("run: join the lock of $%s: %w", allFences, err))
}

func (c *command) acquire(ctx context.Context, locker *lock.Locker) (*lock.Lease, error) {
	acquire := locker.Acquire
	if c.wait == 0 {
		acquire = locker.TryAcquire
	}
	lease, err := acquire(ctx, c.resource)
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, lock.ErrHeld) && errors.Is(err, context.DeadlineExceeded):
		held, _ := errors.AsType[*lock.HeldError](err)
		return nil, &exited{exitAnswer, fmt.Errorf("run: %q was not free for %v: %w", c.resource, c.wait, held)}
	case errors.Is(err, lock.ErrHeld):
		return nil, &exited{exitAnswer, fmt.Errorf("run: %w", err)}
	}
	return nil, refused(fmt.Errorf("run: %w", err))
}

// runUnder runs the command, and ends it when the lease or ctx does.
func (a *app) runUnder(ctx context.Context, lease *lock.Lease, c *command, program string) error {
	f := lease.Fence()
	text, err := f.MarshalText()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, c.args[1:]...)
	cmd.Args[0] = c.args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	cmd.Env = append(os.Environ(), oneFence+"="+string(text), allFences+"="+nested(string(text)), "FENCING_RESOURCE="+f.Resource, "FENCING_TOKEN="+f.Token.String(),
		"FENCING_NONCE="+f.Nonce, "FENCING_HOLDER="+f.Holder)
	// At a terminal it stays in our group: one of its own would be stopped as soon as it
	// asks the terminal for something, though its input comes from elsewhere.
	alone := !slices.ContainsFunc([]any{a.stdin, a.stdout, a.stderr}, isTerminal)
	if alone {
		cmd.SysProcAttr = ownGroup()
	}
	if err := cmd.Start(); err != nil {
		return &exited{126, fmt.Errorf("run: %w", err)}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-lease.Context().Done():
		err = c.end(cmd.Process, alone, ended)
	case <-ctx.Done():
		err = c.end(cmd.Process, alone, ended)
	}
	failed, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case !ok:
		return err
	case ctx.Err() != nil && killed(failed.ProcessState):
		return context.Cause(ctx) // by the signal that came from here
	}
	return &exited{code: codeOf(failed.ProcessState)}
}

// end gives the command the time to end by itself, and no longer.
func (c *command) end(p *os.Process, group bool, ended <-chan error) error {
	terminate(p, group)
	select {
	case err := <-ended:
		return err
	case <-time.After(c.grace):
		kill(p, group)
		return <-ended
	}
}

// exited is an exit code that is not derived from an error, and perhaps one.
type exited struct {
	code int
	error
}

func (e *exited) Error() string {
	if e.error == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.error.Error()
}

// Unwrap makes an exit code without an error one of which nothing is printed: the
// command has said what there is to say.
func (e *exited) Unwrap() error {
	if e.error == nil {
		return errAnswer
	}
	return e.error
}
