package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/pgguard"
)

// Main is the program, if this process was started as a worker: it does not
// return then. Call it first in TestMain.
func Main() {
	text := os.Getenv(configEnv)
	if text == "" {
		return
	}
	if err := run(text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A program is a worker from the inside.
type program struct {
	Config
	pool   *pgxpool.Pool
	guard  *pgguard.Guard
	locker *lock.Locker
	goOn   chan struct{}

	mu  sync.Mutex
	out *json.Encoder

	current Order // the one append that runs
}

func run(config string, in io.Reader, out io.Writer) error {
	p := &program{goOn: make(chan struct{}, 1), out: json.NewEncoder(out)}
	if err := json.Unmarshal([]byte(config), &p.Config); err != nil {
		return err
	}
	// The end of the input ends everything, so that no worker outlives its test.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := p.connect(ctx); err != nil {
		return err
	}
	defer p.pool.Close()
	orders := make(chan Order, 1)
	failed := make(chan error, 1)
	go func() {
		failed <- p.listen(in, orders)
		cancel()
		close(orders)
		close(p.goOn)
	}()
	for o := range orders {
		p.append(ctx, o)
	}
	return errors.Join(<-failed, p.locker.Close())
}

func (p *program) listen(in io.Reader, orders chan<- Order) error {
	for lines := bufio.NewScanner(in); ; {
		if !lines.Scan() {
			return lines.Err()
		}
		var o Order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		if o.Go {
			select {
			case p.goOn <- struct{}{}:
				continue
			default:
				return errors.New("leave to go on, twice")
			}
		}
		orders <- o
	}
}

func (p *program) connect(ctx context.Context) error {
	options, err := redis.ParseURL(p.Redis)
	if err != nil {
		return err
	}
	options.DisableIdentity = true
	redis.SetLogger(silence{})
	backend, err := redislock.New(redis.NewClient(options), redislock.WithPrefix(p.Prefix))
	if err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(p.Postgres)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = p.Name
	// By default only connections that were idle for a second are checked; a server
	// that restarts faster would fail the append instead of what is tested.
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	if p.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	if p.guard, err = pgguard.New(p.pool, pgguard.WithLockTimeout(p.LockTimeout), pgguard.WithIdleTimeout(p.IdleTimeout)); err != nil {
		return err
	}
	p.locker, err = lock.New(backend, lock.WithTTL(p.TTL), lock.WithRetryWait(20*time.Millisecond),
		lock.WithHolder(p.Name), lock.WithGuards(&gate{p}), lock.WithObserver(p.observe))
	return err
}

// silence keeps the client quiet about servers that are down on purpose: what a
// worker says on its standard error fails the test.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// A gate is the guard of the locker: it reports the steps around the raise.
type gate struct{ *program }

func (g *gate) Raise(ctx context.Context, f guard.Fence) error {
	g.step(Granted, Report{Fence: &f})
	if !g.current.Obedient {
		ctx = context.WithoutCancel(ctx)
	}
	if g.Mode == Fenced {
		if err := g.guard.Raise(ctx, f); err != nil {
			return err
		}
	}
	g.step(Raised, Report{Fence: &f})
	return nil
}

// observe reports what the locker tells, except what the steps tell already.
func (p *program) observe(e guard.Event) {
	r := Report{Event: e.Kind.String(), Took: e.Took}
	if e.Fence.Token > 0 { // a wait that was given up has none
		r.Fence = &e.Fence
	}
	r.explain(e.Err)
	if e.Kind != guard.EventRenewed || e.Err != nil {
		p.report(r)
	}
}

// step reports that the append has got somewhere, and waits there once if it was
// told to.
func (p *program) step(s Step, r Report) {
	r.Op, r.Resource, r.Step = p.current.Op, p.current.Resource, s
	p.report(r)
	if i := slices.Index(p.current.Hold, s); i >= 0 {
		p.current.Hold = slices.Delete(p.current.Hold, i, i+1)
		<-p.goOn
	}
}

func (p *program) report(r Report) {
	r.Worker = p.Name
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.out.Encode(r); err != nil {
		if _, bug := errors.AsType[*json.MarshalerError](err); bug {
			fmt.Fprintln(os.Stderr, "worker:", err)
		}
		os.Exit(1) // the test has gone
	}
}

var sentinels = map[string]error{
	"stale": guard.ErrStale, "conflict": guard.ErrConflict, "not raised": guard.ErrNotRaised, "no fence": guard.ErrNoFence,
	"blocked": guard.ErrBlocked, "commit unknown": guard.ErrCommitUnknown,
	"held": lock.ErrHeld, "lost": lock.ErrLost, "release unknown": lock.ErrUnknown,
}

func (r *Report) explain(err error) {
	if err == nil {
		return
	}
	r.Error = err.Error()
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			r.Is = append(r.Is, name)
		}
	}
	if blocked, ok := errors.AsType[*pgguard.BlockedError](err); ok {
		r.BlockedBy = blocked.PID
	}
}
