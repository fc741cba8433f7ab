package pglock_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/pglock"
)

// patience is a wait between two attempts that no test would survive: whoever gets
// a lock sooner was woken.
const patience = lock.MaxTTL

const (
	listening = " from pg_stat_activity where datname = current_database() and application_name = 'fencing-listener'"
	listeners = "select count(*)" + listening
	within    = 20 * time.Second
)

func locker(t testing.TB, b *pglock.Backend, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l, err := lock.New(b, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// inEffect waits until a watch is in effect.
func inEffect(t *testing.T, b *pglock.Backend) (wake <-chan struct{}) {
	t.Helper()
	wake, stop := b.Watch(lock.Request{Resource: resource})
	t.Cleanup(stop)
	woken(t, wake)
	return wake
}

func woken(t *testing.T, wake <-chan struct{}) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(within):
		t.Fatal("no wake-up")
	}
}

// A pool may be made without parameters of its sessions, and lose them before it
// connects; the first waiter ended the process.
func TestAWatchWithoutRuntimeParams(t *testing.T) {
	t.Parallel()
	url := database(t)
	for name, spoil := range map[string]func(*pgxpool.Config){
		"config": func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams = nil },
		"BeforeConnect": func(c *pgxpool.Config) {
			c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { c.RuntimeParams = nil; return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := pgxpool.ParseConfig(url)
			require.NoError(t, err)
			spoil(config)
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			inEffect(t, open(t, pool))
		})
	}
	to, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	to.RuntimeParams = nil
	inEffect(t, open(t, connect(t, url), pglock.WithListen(to)))
}

// Peers' fault: a waiter asks once per lease of the holder, so a release wakes
// nobody for 20s.
func TestAReleaseWakesAWaiterOfAnotherProcess(t *testing.T) {
	t.Parallel()
	url := database(t)
	one, two := open(t, connect(t, url)), open(t, connect(t, url))
	holder := locker(t, one)
	waiter := locker(t, two, lock.WithRetryWait(patience))
	s, err := holder.Acquire(t.Context(), resource)
	require.NoError(t, err)
	inEffect(t, two)
	got := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		next, err := waiter.Acquire(ctx, resource)
		if err == nil {
			err = next.Release(ctx)
		}
		got <- err
	}()
	require.NoError(t, s.Release(t.Context()))
	require.NoError(t, <-got)
}

func TestManyWaitersTakeOneConnectionBesideThePool(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(database(t))
	require.NoError(t, err)
	config.MaxConns = 1 // it must not be the one that listens
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := open(t, pool)
	require.Zero(t, query[int](t, pool, listeners), "nobody waits yet")
	var stops []func()
	for i := range 100 {
		wake, stop := b.Watch(lock.Request{Resource: string(rune('a' + i))})
		woken(t, wake)
		stops = append(stops, stop)
	}
	require.Equal(t, 1, query[int](t, pool, listeners))
	for _, stop := range stops {
		stop()
	}
	require.Eventually(t, func() bool { return query[int](t, pool, listeners) == 0 }, within, 50*time.Millisecond, "nobody waits any more")
	inEffect(t, b)
}

func TestTheListenerComesBackAndWakesEverybody(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	b := open(t, pool)
	wake := inEffect(t, b)
	for range 2 {
		require.Positive(t, query[int](t, pool, "select count(pg_terminate_backend(pid))"+listening))
		woken(t, wake) // whatever was released in between
		r := request()
		acquire(t, b, r)
		require.NoError(t, b.Release(t.Context(), r))
		woken(t, wake)
	}
}

// A LISTEN through a PgBouncer in transaction mode succeeds and is another
// client's. The watch must not pretend to work, and nothing may be left behind in
// the sessions of others.
func TestBehindPgBouncerWaitersPoll(t *testing.T) {
	t.Parallel()
	direct := database(t)
	u, err := url.Parse(servertest.PgBouncer(t, direct))
	require.NoError(t, err)
	u.RawQuery += "&default_query_exec_mode=exec&pool_max_conns=1"
	config, err := pgxpool.ParseConfig(u.String())
	require.NoError(t, err)
	var dials atomic.Int64
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := open(t, pool)
	wake, stop := b.Watch(lock.Request{Resource: resource})
	defer stop()

	l := locker(t, b)
	s, err := l.Acquire(t.Context(), resource)
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		next, err := l.Acquire(context.WithoutCancel(t.Context()), resource)
		got <- errors.Join(err, next.Release(context.Background()))
	}()
	require.NoError(t, s.Release(t.Context()))
	require.NoError(t, <-got)
	select {
	case <-wake:
		t.Fatal("a watch that hears nothing has come into effect")
	default:
	}
	require.Eventually(t, func() bool { return dials.Load() > 2 }, within, time.Millisecond, "the pool's one, and one that is a second attempt to listen")
	require.Zero(t, query[int](t, pool, "select count(*) from pg_listening_channels()"))
}

func TestWithoutListenThereIsNoConnection(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	b := open(t, pool, pglock.WithoutListen())
	_, stop := b.Watch(lock.Request{Resource: resource})
	defer stop()
	l := locker(t, b, lock.WithRetryWait(time.Millisecond))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := l.Do(t.Context(), resource, func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Zero(t, query[int](t, pool, listeners))
}

// What is published is heard by every role of the database: names and nonces must
// not be in it.
func TestNotificationsDoNotTellNames(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	b := open(t, pool)
	spy, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer spy.Release()
	_, err = spy.Exec(t.Context(), "listen fencing_lease")
	require.NoError(t, err)
	holder, next := request(), request()
	_, err = b.AcquireInTurn(t.Context(), holder, time.Minute)
	require.NoError(t, err)
	_, err = b.AcquireInTurn(t.Context(), next, time.Minute)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, b.Release(t.Context(), holder))
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	n, err := spy.Conn().WaitForNotification(ctx)
	require.NoError(t, err)
	require.Regexp(t, "^[0-9a-f]{32} [0-9a-f]{32}$", n.Payload)
}

// Of those who queue, only the one whose turn it is is woken.
func TestAReleaseWakesOnlyTheFirstInTheQueue(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, database(t)))
	holder, second, third := request(), request(), request()
	turn := func(r lock.Request) error {
		_, err := b.AcquireInTurn(t.Context(), r, time.Minute)
		return err
	}
	require.NoError(t, turn(holder))
	require.ErrorIs(t, turn(second), lock.ErrHeld)
	require.ErrorIs(t, turn(third), lock.ErrHeld)
	first, stopFirst := b.Watch(second)
	defer stopFirst()
	last, stopLast := b.Watch(third)
	defer stopLast()
	woken(t, first)
	woken(t, last)
	require.NoError(t, b.Release(t.Context(), holder))
	woken(t, first)
	require.NoError(t, turn(second))
	select {
	case <-last:
		t.Fatal("woken out of turn")
	default:
	}
	require.NoError(t, b.Release(t.Context(), second))
	woken(t, last)
	require.NoError(t, turn(third))
}

func TestFairnessAcrossProcesses(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	first := locker(t, open(t, pool), lock.WithFair())
	s, err := first.Acquire(t.Context(), resource)
	require.NoError(t, err)
	order := make(chan int, 5)
	var wg sync.WaitGroup
	for i := range cap(order) {
		l := locker(t, open(t, pool), lock.WithFair())
		wg.Go(func() {
			if err := l.Do(t.Context(), resource, func(context.Context) error { order <- i; return nil }); err != nil {
				t.Error(err)
			}
		})
		require.Eventually(t, func() bool { return query[int](t, pool, "select count(*) from fencing.lease_queue") == i+1 }, within, time.Millisecond)
	}
	require.NoError(t, s.Release(t.Context()))
	wg.Wait()
	for i := range cap(order) {
		require.Equal(t, i, <-order)
	}
	require.Zero(t, query[int](t, pool, "select count(*) from fencing.lease_queue"))
}
