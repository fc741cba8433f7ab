package sqlguard_test

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/sqlguard"
)

// postgresWith is Postgres with a setting for every session.
func postgresWith(name, value string) target {
	return target{"postgres", sqlguard.Postgres, func(t testing.TB) driver.Connector {
		config, err := pgx.ParseConfig(servertest.Postgres(t))
		require.NoError(t, err)
		config.RuntimeParams[name] = value
		return stdlib.GetConnector(*config)
	}}
}

// blocks leaves a transaction in the way of raises of "r", and returns its process.
func (db *database) blocks() (pid int64) {
	db.Helper()
	ctx, _ := db.raised("r", 33, "A")
	tx, err := db.guard.BeginTx(ctx, nil)
	require.NoError(db, err)
	db.Cleanup(func() { _ = tx.Rollback() })
	require.NoError(db, tx.QueryRow("select pg_backend_pid()").Scan(&pid))
	return pid
}

func TestPostgresRaiseThatTheStatementTimeoutEndsWasBlocked(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, postgresWith("statement_timeout", "1500ms"))
	pid := db.blocks()
	err := db.guard.Raise(t.Context(), fence("r", 34, "B"))
	require.ErrorIs(t, err, guard.ErrBlocked)
	var blocked *sqlguard.BlockedError
	require.ErrorAs(t, err, &blocked)
	require.Equal(t, pid, blocked.Connection)
	_, err = db.guard.Issue(t.Context(), "r", "n", "B")
	require.ErrorIs(t, err, guard.ErrBlocked)
}

// The search for the connection in the way must not wait for that of the raise.
func TestPostgresBlockedRaiseOfAPoolWithOneConnection(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, postgres)
	db.blocks()
	pool := db.openDB(db.connector)
	pool.SetMaxOpenConns(1)
	g, err := sqlguard.New(pool, db.dialect)
	require.NoError(t, err)
	err = g.Raise(db.untilBlocked(), fence("r", 34, "B"))
	require.ErrorIs(t, err, guard.ErrBlocked)
	require.ErrorIs(t, err, context.Canceled)
}

// A function of somebody's own that fits the arguments better than the one of
// pg_catalog would run with the rights of the program.
func TestPostgresNobodysOwnFunctionIsCalled(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, postgres)
	for _, function := range []string{
		"hashtextextended(text, int) returns bigint", "json_build_object(text, int, text, text, text, timestamptz, text, text) returns json", "times(numeric, int) returns numeric",
	} {
		db.must("create function public." + function + " language plpgsql as 'begin raise ''captured''; end'")
	}
	db.must("create operator public.* (leftarg = numeric, rightarg = int, function = public.times)")
	pid := db.blocks()
	err := db.guard.Raise(db.untilBlocked(), fence("r", 34, "B"))
	var blocked *sqlguard.BlockedError
	require.ErrorAs(t, err, &blocked, "%v", err)
	require.Equal(t, pid, blocked.Connection)
}

// untilBlocked returns a context that ends as soon as somebody waits for a lock.
func (db *database) untilBlocked() context.Context {
	ctx, cancel := context.WithCancel(db.Context())
	db.Cleanup(cancel)
	go func() {
		defer cancel()
		for waits := false; !waits && ctx.Err() == nil; {
			_ = db.db.QueryRowContext(ctx, "select count(*) > 0 from pg_locks join pg_database d on d.oid = database where datname = current_database() and not granted").Scan(&waits)
			<-time.After(2 * time.Millisecond)
		}
	}()
	return ctx
}

func TestPostgresHintsNameTheSchema(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, postgres)
	for schema, command := range map[string]string{
		"elsewhere": "fencectl migrate up --schema elsewhere", "it's Fencing": `fencectl migrate up --schema 'it'\''s Fencing'`,
	} {
		err := db.newGuard(sqlguard.WithSchema(schema)).Raise(t.Context(), fence("r", 1, "A"))
		require.ErrorIs(t, err, sqlguard.ErrSchema)
		require.ErrorContains(t, err, `run "`+command+`"`)
	}
	db.must("create or replace function fencing.protocol() returns integer language sql immutable as 'select 0'")
	require.ErrorContains(t, db.newGuard().Raise(t.Context(), fence("r", 1, "A")), `run "fencectl migrate up"`)
}

func TestTheServerIsOfAnotherDialect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		target target
		server string
	}{{postgres, "PostgreSQL"}, {mariadb, "MySQL or MariaDB"}, {sqliteWAL, "SQLite"}} {
		t.Run(c.target.name, func(t *testing.T) {
			t.Parallel()
			db := &database{TB: t, target: c.target, connector: c.target.open(t)}
			pool := db.openDB(db.connector)
			for _, d := range []sqlguard.Dialect{sqlguard.Postgres, sqlguard.MySQL, sqlguard.SQLite} {
				if d == c.target.dialect {
					continue
				}
				want := "the server is " + c.server + ", the dialect says " + string(d)
				g, err := sqlguard.New(pool, d)
				require.NoError(t, err)
				require.ErrorContains(t, g.Raise(t.Context(), fence("r", 1, "A")), want)
				tx, err := pool.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				require.ErrorContains(t, sqlguard.Enter(t.Context(), d, tx, fence("r", 1, "A")), want)
				require.NoError(t, tx.Rollback())
				_, err = db.openDB(sqlguard.Wrap(db.connector, d)).ExecContext(guard.NewContext(t.Context(), fence("r", 1, "A")), "insert into item values ('a', 1)")
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestS18_PostgresAFenceOfAGivenUpRangeIsStale(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, postgresWith("application_name", "test"))
	ctx, poisoned := db.raised("r", 1<<63-1, "A")
	db.must("select from fencing.rebase('r', 1000)")
	err := db.guard.Raise(t.Context(), poisoned)
	require.ErrorIs(t, err, guard.ErrStale)
	require.ErrorContains(t, err, "superseded by token 1000 of rebase")
	require.ErrorIs(t, db.guard.InTx(ctx, nil), guard.ErrNotRaised)
}

// The functions of the schema look at other sessions as their owner, which as an
// ordinary role sees nothing of those of the service.
func TestPostgresBlockedRaiseNamesWhatTheUserMaySeeAndTheOwnerOfTheSchemaMayNot(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, postgres)
	owner := "owner_" + strings.ToLower(rand.Text())
	db.must(`create role ` + owner)
	db.Cleanup(func() {
		_, err := db.db.Exec(`drop owned by ` + owner + ` cascade; drop role ` + owner)
		require.NoError(t, err)
	})
	db.must(`do $$ declare o text; begin
		for o in select format('function %s', p.oid::regprocedure) from pg_proc p where pronamespace = 'fencing'::regnamespace
		   union all select format('table %s', c.oid::regclass) from pg_class c where relnamespace = 'fencing'::regnamespace and relkind = 'r'
		loop execute format('alter %s owner to ` + owner + `', o); end loop; end $$`)
	pid := db.blocks()
	var blocked *sqlguard.BlockedError
	require.ErrorAs(t, db.newGuard(sqlguard.WithLockTimeout(200*time.Millisecond)).Raise(t.Context(), fence("r", 34, "B")), &blocked)
	require.Equal(t, pid, blocked.Connection)
	require.Equal(t, "idle in transaction", blocked.State)
	require.WithinDuration(t, time.Now(), blocked.Since, time.Minute)
}
