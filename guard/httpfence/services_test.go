package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/guard/httpfence"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/internal/wiretest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/pgguard"
)

const sku = "inventory:sku-42"

// serviceB keeps the stock in its own Postgres. It has never heard of the lock.
type serviceB struct {
	url  string
	pool *pgxpool.Pool
}

func newServiceB(t *testing.T, guarded bool) *serviceB {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), servertest.Postgres(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, migrations.Up(t.Context(), pool))
	_, err = pool.Exec(t.Context(), "CREATE TABLE inventory (sku text PRIMARY KEY, stock int NOT NULL)")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "INSERT INTO inventory VALUES ('sku-42', 100)")
	require.NoError(t, err)
	store, err := pgguard.New(pool)
	require.NoError(t, err)

	b := &serviceB{pool: pool}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stock", func(w http.ResponseWriter, r *http.Request) {
		stock, err := b.stock(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprint(w, stock)
	})
	mux.HandleFunc("PUT /stock/{n}", func(w http.ResponseWriter, r *http.Request) {
		set := func(tx pgx.Tx) error {
			_, err := tx.Exec(r.Context(), "UPDATE inventory SET stock = $1 WHERE sku = 'sku-42'", r.PathValue("n"))
			return err
		}
		var err error
		if guarded {
			err = store.InTx(r.Context(), set)
		} else {
			err = pgx.BeginFunc(r.Context(), pool, set)
		}
		switch {
		case errors.Is(err, guard.ErrStale):
			http.Error(w, err.Error(), http.StatusConflict)
		case errors.Is(err, guard.ErrNoFence):
			http.Error(w, err.Error(), http.StatusPreconditionRequired)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	h := http.Handler(mux)
	if guarded {
		h = httpfence.Middleware(wiretest.Verifier(t, "inventory", fencewire.WithGuards(store)))(mux)
	}
	b.url = serve(t, h).URL
	return b
}

func (b *serviceB) stock(ctx context.Context) (n int, err error) {
	err = b.pool.QueryRow(ctx, "SELECT stock FROM inventory WHERE sku = 'sku-42'").Scan(&n)
	return n, err
}

// serviceA is one replica of the service that has the lock. It sells n of what is
// there for POST /sell/{n}, through B.
type serviceA struct {
	url     string
	read    chan int      // what it has read is sent here,
	proceed chan struct{} // and it goes on when this is closed
	once    sync.Once
}

func (a *serviceA) goOn() { a.once.Do(func() { close(a.proceed) }) }

func newServiceA(t *testing.T, backend lock.Backend, stockURL string, ttl time.Duration) *serviceA {
	t.Helper()
	locker, err := lock.New(backend, lock.WithTTL(ttl), lock.WithoutRenewal(), lock.WithRetryWait(5*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { _ = locker.Close() })
	c := client(t, http.DefaultTransport.(*http.Transport).Clone(), stockURL)
	a := &serviceA{read: make(chan int, 1), proceed: make(chan struct{})}
	sell := func(w http.ResponseWriter, r *http.Request) error {
		lease, err := locker.Acquire(r.Context(), sku)
		if err != nil {
			return err
		}
		defer func() { _ = lease.Release(r.Context()) }() // that it was lost, the store says
		// A process that is paused does not see its context end: what it sends goes out.
		ctx := context.WithoutCancel(lease.Context())
		_, body, err := call(ctx, c, http.MethodGet, stockURL+"/stock")
		if err != nil {
			return err
		}
		stock, err := strconv.Atoi(body)
		if err != nil {
			return err
		}
		a.read <- stock
		select {
		case <-a.proceed:
		case <-r.Context().Done():
			return r.Context().Err()
		}
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil {
			return err
		}
		status, body, err := call(ctx, c, http.MethodPut, stockURL+"/stock/"+strconv.Itoa(stock-n))
		if err == nil {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sell/{n}", func(w http.ResponseWriter, r *http.Request) {
		if err := sell(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
	a.url = serve(t, mux).URL
	t.Cleanup(a.goOn) // before the server waits for its handlers
	return a
}

func call(ctx context.Context, c *http.Client, method, url string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// A sale is the answer of A to one request.
type sale struct {
	status int
	body   string
	err    error
}

func (a *serviceA) sell(t *testing.T, n int) <-chan sale {
	t.Helper()
	answer := make(chan sale, 1)
	ctx := t.Context()
	go func() {
		status, body, err := call(ctx, http.DefaultClient, http.MethodPost, a.url+"/sell/"+strconv.Itoa(n))
		answer <- sale{status, body, err}
	}()
	return answer
}

func within[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		require.FailNow(t, "nothing came for a minute")
	}
	return v
}

// The history of the README with a service between the holder and the database. It
// comes out wrong without the guard, which shows that it is that history; with it B
// refuses, wherever the late write lands: after the write of the newer holder, or
// between its read and its write (S2), where only the raise with the read helps.
func TestS45_TheOtherServicesDatabaseRefusesTheStaleHolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		guarded, window bool
		late            int // status
		stock           int
	}{
		"unguarded, after the newer write": {false, false, http.StatusOK, 70},
		"unguarded, in the read window":    {false, true, http.StatusOK, 50},
		"guarded, after the newer write":   {true, false, http.StatusConflict, 50},
		"guarded, in the read window (S2)": {true, true, http.StatusConflict, 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newServiceB(t, c.guarded)
			backend := memlock.New()
			paused := newServiceA(t, backend, b.url, 50*time.Millisecond)
			newer := newServiceA(t, backend, b.url, time.Minute)

			first := paused.sell(t, 30)
			require.Equal(t, 100, within(t, paused.read))
			second := newer.sell(t, 50) // waits for the end of the lease
			require.Equal(t, 100, within(t, newer.read))
			if c.window {
				paused.goOn()
				late := within(t, first)
				require.NoError(t, late.err)
				require.Equal(t, c.late, late.status, late.body)
			}
			newer.goOn()
			sold := within(t, second)
			require.NoError(t, sold.err)
			require.Equal(t, http.StatusOK, sold.status, sold.body)
			if !c.window {
				paused.goOn()
				late := within(t, first)
				require.NoError(t, late.err)
				require.Equal(t, c.late, late.status, late.body)
				if c.guarded {
					require.Contains(t, late.body, "superseded by token 2")
				}
			}
			stock, err := b.stock(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.stock, stock)
		})
	}
}

func TestAWriteUnderNoLockIsRefusedByTheOtherService(t *testing.T) {
	t.Parallel()
	b := newServiceB(t, true)
	status, body, err := call(t.Context(), client(t, nil, b.url), http.MethodPut, b.url+"/stock/1")
	require.NoError(t, err)
	require.Equal(t, http.StatusPreconditionRequired, status)
	require.Contains(t, body, "no fence")
}

// The reason for keys: with this one request nobody else could write again.
func TestAnUntrustedCallerCannotPoisonTheResource(t *testing.T) {
	t.Parallel()
	b := newServiceB(t, true)
	poison := guard.Fence{Resource: sku, Token: 1<<63 - 1, Nonce: "n", Holder: "mallory"}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, b.url+"/stock/0", nil)
	require.NoError(t, err)
	r.Header[fencewire.Header] = wiretest.Values(t, wiretest.Signer(t, "inventory", wiretest.Forged), poison)
	status, _ := do(t, http.DefaultClient, r)
	require.Equal(t, http.StatusBadRequest, status)

	status, body, err := call(guard.NewContext(t.Context(), guard.Fence{Resource: sku, Token: 1, Nonce: "m"}), client(t, nil, b.url), http.MethodPut, b.url+"/stock/7")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	stock, err := b.stock(t.Context())
	require.NoError(t, err)
	require.Equal(t, 7, stock)
}
