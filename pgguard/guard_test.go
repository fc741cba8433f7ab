package pgguard_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	_, err := pgguard.New(nil)
	require.ErrorContains(t, err, "pool is nil")
	pool := newPool(t, "postgres://127.0.0.1:1/nowhere")
	for want, opts := range map[string][]pgguard.Option{
		"option is nil":                    {nil},
		"schema name":                      {pgguard.WithSchema("")},
		"schema name \"x":                  {pgguard.WithSchema(strings.Repeat("x", 64))},
		"lock timeout 0s":                  {pgguard.WithLockTimeout(0)},
		"lock timeout -1s":                 {pgguard.WithLockTimeout(-time.Second)},
		"lock timeout 1µs":                 {pgguard.WithLockTimeout(time.Microsecond)},
		"lock timeout 1h0m0.0005s":         {pgguard.WithLockTimeout(time.Hour + 500*time.Microsecond)},
		"lock timeout 10000h0m0s":          {pgguard.WithLockTimeout(10000 * time.Hour)},
		"idle timeout 0s":                  {pgguard.WithIdleTimeout(0)},
		"not shorter than the lock":        {pgguard.WithIdleTimeout(10 * time.Second)},
		"5s is not shorter than the lock ": {pgguard.WithIdleTimeout(5 * time.Second), pgguard.WithLockTimeout(time.Second)},
	} {
		_, err := pgguard.New(pool, opts...)
		require.ErrorContains(t, err, want)
		require.Regexp(t, "^pgguard: ", err.Error())
	}
	_, err = pgguard.New(pool, pgguard.WithLockTimeout(time.Second), pgguard.WithIdleTimeout(999*time.Millisecond), pgguard.WithObserver(nil))
	require.NoError(t, err)
	_, err = pgguard.New(pool, pgguard.WithLockTimeout(time.Millisecond))
	require.ErrorContains(t, err, "not shorter", "half a millisecond is no idle timeout")
}

func TestSchemaThatDoesNotFit(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx := guard.NewContext(t.Context(), fence("r", 1, "A"))
	protocol := func(n int) string {
		return fmt.Sprintf("create or replace function fencing.protocol() returns integer language sql immutable as 'select %d'", n)
	}
	role := unique("ordinary")
	db.must(`create role "` + role + `" login; revoke usage on schema fencing from public`)
	t.Cleanup(func() { db.pool.Exec(context.Background(), `drop role "`+role+`"`) })
	unprivileged, err := url.Parse(db.url)
	require.NoError(t, err)
	unprivileged.User = url.User(role)
	err = newGuard(t, newPool(t, unprivileged.String())).InTx(ctx, nil)
	require.ErrorIs(t, err, pgguard.ErrSchema)
	require.ErrorContains(t, err, "grant it USAGE")

	for _, c := range []struct{ sql, want string }{
		{protocol(2), "upgrade the module"},
		{protocol(0), "fencectl migrate up"},
		{protocol(1) + "; create or replace function fencing.version() returns integer language sql immutable as 'select 2'", "fencectl migrate up"},
		{"drop schema fencing cascade", "fencectl migrate up"},
	} {
		db.must(c.sql)
		g := newGuard(t, db.pool)
		for name, call := range everyCall(ctx, g) {
			err := call()
			require.ErrorIs(t, err, pgguard.ErrSchema, name)
			require.ErrorContains(t, err, c.want, name)
		}
	}
	tx, err := db.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	require.ErrorIs(t, pgguard.Enter(ctx, tx), pgguard.ErrSchema)
	require.Zero(t, db.pool.Stat().AcquiredConns()-1)
}

func TestSchemaIsCheckedUntilItFits(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	trips := &tripCounter{}
	g := newGuard(t, newPool(t, db.url, trips.count))
	db.must("alter schema fencing rename to elsewhere")
	require.ErrorIs(t, g.Raise(t.Context(), fence("r", 1, "A")), pgguard.ErrSchema)
	db.must("alter schema elsewhere rename to fencing")
	require.NoError(t, g.Raise(t.Context(), fence("r", 1, "A")))
	db.must("alter schema fencing rename to elsewhere")
	require.ErrorIs(t, g.InTx(guard.NewContext(t.Context(), fence("r", 1, "A")), nil), pgguard.ErrSchema, "dropped afterwards")
}

func TestSchemaOfAnotherName(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	const name = `Fences; "of" ours`
	quoted := pgx.Identifier{name}.Sanitize()
	files, err := filepath.Glob("../migrations/*.up.sql")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		sql := strings.NewReplacer("fencing.held", "fencing.held", "fencing.", quoted+".", "SCHEMA fencing", "SCHEMA "+quoted).Replace(string(text))
		db.must(sql)
	}
	db.must("drop trigger guarded_fence on guarded; drop schema fencing cascade")
	g := newGuard(t, db.pool, pgguard.WithSchema(name))
	f, err := g.Issue(t.Context(), "r", "n", "A")
	require.NoError(t, err)
	ctx := guard.NewContext(t.Context(), f)
	for call, write := range everyCall(ctx, g) {
		require.NoError(t, write(), call)
	}
	tx, err := db.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	require.NoError(t, g.Enter(ctx, tx))
	require.ErrorIs(t, pgguard.Enter(ctx, tx), pgguard.ErrSchema)
}

func TestMissingSchemaIsNamedInTheCommandThatInstallsIt(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for schema, command := range map[string]string{
		"elsewhere":    "fencectl migrate up --schema elsewhere",
		"it's Fencing": `fencectl migrate up --schema 'it'\''s Fencing'`,
	} {
		err := newGuard(t, db.pool, pgguard.WithSchema(schema)).Raise(t.Context(), fence("r", 1, "A"))
		require.ErrorIs(t, err, pgguard.ErrSchema)
		require.ErrorContains(t, err, `run "`+command+`"`)
	}
}

func TestSchemaThatIsDroppedAfterTheCheckIsMissedByEveryCall(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			pool := newPool(t, db.url, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			g := newGuard(t, pool)
			works := func() {
				t.Helper()
				f, err := g.Issue(t.Context(), "r", "n", "A")
				require.NoError(t, err)
				for name, call := range everyCall(guard.NewContext(t.Context(), f), g) {
					require.NoError(t, call(), name)
				}
			}
			works()
			db.must("drop schema fencing cascade")
			for name, call := range everyCall(guard.NewContext(t.Context(), fence("r", 1, "A")), g) {
				require.ErrorIs(t, call(), pgguard.ErrSchema, name)
			}
			_, err := g.Exec(guard.NewContext(t.Context(), fence("r", 1, "A")), "select nobody_knows()")
			require.Error(t, err)
			db.must("drop table item, kid, guarded")
			install(t, db.pool)
			works() // on connections that have prepared statements for the first schema
			require.Zero(t, pool.Stat().AcquiredConns())
		})
	}
}

// everyCall calls every method of a guard that talks to the server, without
// writing anything of consequence.
func everyCall(ctx context.Context, g *pgguard.Guard) map[string]func() error {
	batch := func(begins bool) *pgx.Batch {
		b := &pgx.Batch{}
		if begins {
			b.BeginTx(pgx.TxOptions{})
		}
		b.Queue("select 1")
		return b
	}
	return map[string]func() error{
		"Raise":    func() error { return g.Raise(ctx, guard.Fences(ctx)[0]) },
		"Issue":    func() error { _, err := g.Issue(ctx, unique("issued"), "n", "A"); return err },
		"InTx":     func() error { return g.InTx(ctx, nothing) },
		"Once":     func() error { return g.Once(ctx, unique("o"), nothing) },
		"Exec":     func() error { _, err := g.Exec(ctx, "select 1"); return err },
		"Query":    func() error { rows, _ := g.Query(ctx, "select 1"); rows.Close(); return rows.Err() },
		"QueryRow": func() error { return g.QueryRow(ctx, "select 1").Scan(nil) },
		"SendBatch": func() error {
			return g.SendBatch(ctx, batch(false)).Close()
		},
		"SendBatch that begins": func() error {
			results := g.SendBatch(ctx, batch(true))
			defer func() { _ = results.Tx().Rollback(context.Background()) }()
			return results.Close()
		},
		"CopyFrom": func() error {
			_, err := g.CopyFrom(ctx, pgx.Identifier{"kid"}, []string{"id"}, pgx.CopyFromRows(nil))
			return err
		},
	}
}

func TestPoolThatCannotServe(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		ctx, f := db.raised("r", 1, "A")
		boom := errors.New("the lease was lost")
		dead, cancel := context.WithCancelCause(ctx)
		cancel(boom)

		closed := newPool(t, db.url)
		closedGuard := db.newGuard(closed)
		require.NoError(t, closedGuard.InTx(ctx, nothing))
		closed.Close()

		const secret = "hunter2-secret"
		role := unique("role")
		db.must(`create role "` + role + `" nologin`)
		t.Cleanup(func() { db.pool.Exec(context.Background(), `drop role "`+role+`"`) })
		refused, err := url.Parse(db.url)
		require.NoError(t, err)
		refused.User = url.UserPassword(role, secret)
		nobody := *refused
		nobody.Host = "127.0.0.1:1"

		busy := newPool(t, db.url, func(c *pgxpool.Config) { c.MaxConns = 1 })
		busyGuard := db.newGuard(busy)
		require.NoError(t, busyGuard.InTx(ctx, nothing))
		conn, err := busy.Acquire(ctx)
		require.NoError(t, err)
		defer conn.Release()
		short, cancelShort := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancelShort()

		for name, c := range map[string]struct {
			ctx   context.Context
			guard *pgguard.Guard
			is    error
			want  string
		}{
			"a closed pool":     {ctx, closedGuard, nil, "closed pool"},
			"a dead context":    {dead, db.guard, context.Canceled, "the lease was lost"},
			"wrong credentials": {ctx, db.newGuard(newPool(t, refused.String())), nil, "not permitted to log in"},
			"no server":         {ctx, db.newGuard(newPool(t, nobody.String())), nil, "connect"},
			"an exhausted pool": {short, busyGuard, context.DeadlineExceeded, "deadline"},
		} {
			for call, do := range everyCall(c.ctx, c.guard) {
				start := time.Now()
				err := do()
				require.ErrorContains(t, err, c.want, "%s: %s", name, call)
				require.Regexp(t, "^pgguard: ", err.Error())
				if c.is != nil {
					require.ErrorIs(t, err, c.is, "%s: %s", name, call)
				}
				require.NotErrorIs(t, err, guard.ErrBlocked)
				require.NotErrorIs(t, err, guard.ErrCommitUnknown)
				require.NotContains(t, fmt.Sprintf("%v %+v", err, err), secret)
				require.Less(t, time.Since(start), 5*time.Second, "%s: %s", name, call)
			}
		}
		require.ErrorIs(t, db.guard.Raise(dead, f), boom, "the cause of the context is there too")
		require.Zero(t, db.pool.Stat().AcquiredConns())
	})
}

// What the pool has may all be in transactions that wait to be entered.
func TestEnterNeedsNoOtherConnection(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		pool := newPool(t, db.url, func(c *pgxpool.Config) {
			c.MaxConns = 1
			c.ConnConfig.DefaultQueryExecMode = db.pool.Config().ConnConfig.DefaultQueryExecMode
		})
		g := newGuard(t, pool)
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return g.Enter(ctx, tx) }))
	})
}

func TestRetryable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("x"), false},
		{&pgconn.PgError{Code: "40001"}, true},
		{fmt.Errorf("repository: %w", &pgconn.PgError{Code: "40P01"}), true},
		{&pgconn.PgError{Code: "23505"}, false},
		{fmt.Errorf("%w: %w", guard.ErrCommitUnknown, &pgconn.PgError{Code: "40001"}), false},
		{&guard.StaleError{}, false},
		{&guard.NotRaisedError{}, false},
		{guard.ErrNoFence, false},
	} {
		require.Equal(t, c.want, pgguard.Retryable(c.err), "%v", c.err)
	}
}

// This test is not parallel, so no other one is running.
func TestNoGoroutineIsLeft(t *testing.T) {
	db := newDatabase(t)
	before := goleak.IgnoreCurrent()
	for _, deferred := range []bool{false, true} {
		pool := newPool(t, db.url)
		db.deferred = deferred
		g := db.newGuard(pool)
		f, err := g.Issue(t.Context(), "r", fmt.Sprintf("deferred %t", deferred), "A")
		require.NoError(t, err)
		ctx := guard.NewContext(t.Context(), f)
		for name, call := range everyCall(ctx, g) {
			require.NoError(t, call(), name)
		}
		stale := guard.NewContext(t.Context(), fence("r", f.Token, "B"))
		for name, call := range everyCall(stale, g) {
			if name != "Issue" {
				require.ErrorIs(t, call(), guard.ErrStale, name)
			}
		}
		pool.Close()
	}
	goleak.VerifyNone(t, before)
}

func TestNilIsRefusedAndDoesNotPanic(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised("r", 1, "A")
		require.ErrorContains(t, db.guard.InTx(ctx, nil), "the function is nil")
		require.ErrorContains(t, db.guard.Once(ctx, "o", nil), "the function is nil")
		require.ErrorContains(t, pgguard.Enter(ctx, nil), "the transaction is nil")
		require.ErrorContains(t, db.guard.Enter(ctx, nil), "the transaction is nil")
		require.ErrorContains(t, pgguard.UpdateRow(ctx, nil, sale("r", "x")), "the transaction is nil")
		require.ErrorContains(t, new(pgguard.Guard).InTx(ctx, nothing), "make it with New")
		require.ErrorContains(t, new(pgguard.Guard).Raise(ctx, fence("r", 2, "A")), "make it with New")
		require.NoError(t, db.guard.Once(ctx, "o", nothing))
	})
}
