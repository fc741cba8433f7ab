package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/freeze"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// Work is the worker process: it does what in orders until that ends.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	orders, replies := json.NewDecoder(in), json.NewEncoder(out)
	var s setup
	if err := orders.Decode(&s); err != nil {
		return fmt.Errorf("this command is for \"fencectl demo\" alone: %w", err)
	}
	w, err := newWorker(ctx, s)
	if err != nil {
		return err
	}
	defer w.close()
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := replies.Encode(w.obey(ctx, o)); err != nil {
			return err
		}
	}
}

type worker struct {
	store    *workerStore
	alone    *lock.Locker // no store knows of it
	guarded  *lock.Locker
	cleanups []func()

	lease *lock.Lease
	shop  inventory // of the lease

	mu     sync.Mutex
	events []event
}

// A workerStore is a store as a worker has it.
type workerStore struct {
	plain, guarded inventory
	guard          guard.Guard
	close          func()
}

func openStore(ctx context.Context, s setup) (*workerStore, error) {
	if s.Store == SQLite {
		return sqliteStore(s.SQLite)
	}
	return postgresStore(ctx, s)
}

func newWorker(ctx context.Context, s setup) (*worker, error) {
	w := &worker{}
	err := w.open(ctx, s)
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *worker) open(ctx context.Context, s setup) error {
	redis, err := target.ParseRedis(target.Setting{Source: "--redis", Value: s.Redis})
	if err != nil {
		return err
	}
	if w.store, err = openStore(ctx, s); err != nil {
		return err
	}
	w.cleanups = append(w.cleanups, w.store.close)
	rdb, err := redis.Connect(ctx)
	if err != nil {
		return err
	}
	w.cleanups = append(w.cleanups, func() { _ = rdb.Close() }) // the process ends with it
	locks, err := redislock.New(rdb, redislock.WithPrefix(s.Prefix))
	if err != nil {
		return err
	}
	opts := []lock.Option{lock.WithTTL(s.TTL), lock.WithHolder(fmt.Sprintf("%s (process %d)", s.Name, os.Getpid())), lock.WithObserver(w.observe)}
	if !freeze.Possible {
		// A worker that only waits would go on renewing.
		opts = append(opts, lock.WithoutRenewal())
	}
	if w.alone, err = lock.New(locks, opts...); err != nil {
		return err
	}
	w.cleanups = append(w.cleanups, func() { _ = w.alone.Close() }) // what is left of a lease ends with its TTL
	if w.guarded, err = lock.New(locks, append(opts, lock.WithGuards(w.store.guard))...); err != nil {
		return err
	}
	w.cleanups = append(w.cleanups, func() { _ = w.guarded.Close() })
	return nil
}

func (w *worker) close() {
	for i := len(w.cleanups) - 1; i >= 0; i-- {
		w.cleanups[i]()
	}
}

func (w *worker) obey(ctx context.Context, o order) reply {
	begun := time.Now()
	r, err := w.do(ctx, o)
	r.Took = time.Since(begun)
	if w.lease != nil {
		r.Fence, r.Left = w.lease.Fence(), time.Until(w.lease.Deadline())
	}
	if err != nil {
		r.Error = failed(err)
	}
	return r
}

func (w *worker) do(ctx context.Context, o order) (r reply, err error) {
	if o.Do != doAcquire && w.lease == nil {
		return r, fmt.Errorf("%s without a lease", o.Do)
	}
	switch o.Do {
	case doAcquire:
		locker := w.alone
		w.shop = w.store.plain
		if o.Guarded {
			locker, w.shop = w.guarded, w.store.guarded
		}
		w.recorded() // what an earlier lease left
		w.lease, err = w.acquire(ctx, locker)
		r.Events = w.recorded()
	case doRead:
		r.Stock, err = w.shop.stock(w.lease.Context())
		if cause := context.Cause(w.lease.Context()); err != nil && cause != nil {
			err = cause // a driver says only that a context has ended
		}
	case doCheck:
		err = context.Cause(w.lease.Context())
	case doWrite:
		// The lease's fence, without its end: the check came before, and a pause can
		// come between any check and the moment at which the store takes the write.
		err = w.shop.setStock(context.WithoutCancel(w.lease.Context()), o.Stock)
	case doRelease:
		err = w.lease.Release(ctx)
	default:
		err = fmt.Errorf("unknown order %q", o.Do)
	}
	return r, err
}

// acquire gives up at last, should a lease that is to run out never do that. It
// bounds the wait alone: the lease's context must not end with it.
func (w *worker) acquire(ctx context.Context, locker *lock.Locker) (*lock.Lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	const bound = 30 * time.Second
	timer := time.AfterFunc(bound, func() { cancel(fmt.Errorf("no lock within %v: %w", bound, context.DeadlineExceeded)) })
	lease, err := locker.Acquire(ctx, resource)
	timer.Stop()
	if err != nil {
		cancel(err)
	}
	return lease, err
}

func (w *worker) observe(e guard.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := ""
	if e.Err != nil {
		text = e.Err.Error()
	}
	w.events = append(w.events, event{Kind: e.Kind, Token: e.Fence.Token, Took: e.Took, Error: text})
}

func (w *worker) recorded() []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

func failed(err error) *failure {
	f := &failure{Text: err.Error(), Stale: errors.Is(err, guard.ErrStale), Lost: errors.Is(err, lock.ErrLost)}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		f.Postgres, f.SQLState = pgErr.Error(), pgErr.Code
	}
	if stale, ok := errors.AsType[*guard.StaleError](err); ok {
		f.Current = stale.Current.Token
	}
	return f
}
