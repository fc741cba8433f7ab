package migrations_test

import (
	"context"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

var (
	_ migrations.DBTX = (*pgxpool.Pool)(nil)
	_ migrations.DBTX = (*pgx.Conn)(nil)
	_ migrations.DBTX = pgx.Tx(nil)
)

func version(t *testing.T, db migrations.DBTX, opts ...migrations.Option) int {
	t.Helper()
	v, err := migrations.Version(t.Context(), db, opts...)
	require.NoError(t, err)
	return v
}

func TestUpInstallsTheLatestVersion(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	require.Equal(t, 0, version(t, db), "before the schema")
	require.NoError(t, migrations.Up(t.Context(), db))
	require.Equal(t, migrations.Latest, version(t, db))

	db.exec(t, "SELECT fencing.raise('r', 1, 'n'); SELECT fencing.next_token('r'); SELECT fencing.once('o')")
	require.NoError(t, migrations.Up(t.Context(), db), "a second time")
	require.Equal(t, "1", db.query(t, "SELECT count(*)::text FROM fencing.fence"), "the second Up kept the fences")
}

func TestLatestIsTheLastStep(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"*.up.sql", "*.down.sql"} {
		names, err := fs.Glob(migrations.FS, pattern)
		require.NoError(t, err)
		require.Len(t, names, migrations.Latest)
	}
}

func TestEveryStepIsReversible(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	states := []string{db.catalog(t)}
	for v := 1; v <= migrations.Latest; v++ {
		require.NoError(t, migrations.Up(t.Context(), db, migrations.To(v)))
		require.Equal(t, v, version(t, db))
		states = append(states, db.catalog(t))
		require.NotEqual(t, states[v-1], states[v])
	}
	dump := db.dump(t)
	for v := migrations.Latest - 1; v >= 0; v-- {
		require.NoError(t, migrations.Down(t.Context(), db, migrations.To(v)))
		require.Equal(t, v, version(t, db))
		require.Equal(t, states[v], db.catalog(t), "version %d", v)
	}
	require.NoError(t, migrations.Up(t.Context(), db))
	require.Equal(t, states[migrations.Latest], db.catalog(t))
	require.Equal(t, dump, db.dump(t))
	require.NoError(t, migrations.Down(t.Context(), db))
	require.Equal(t, states[0], db.catalog(t))
	require.NoError(t, migrations.Down(t.Context(), db), "down of nothing")
}

func TestUpAndDownNeverPassTheirTarget(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	require.NoError(t, migrations.Up(t.Context(), db, migrations.To(1)))
	require.Equal(t, migrations.Latest, version(t, db), "Up does not go down")
	require.NoError(t, migrations.Down(t.Context(), db, migrations.To(1)))
	require.NoError(t, migrations.Down(t.Context(), db, migrations.To(2)))
	require.Equal(t, 1, version(t, db), "Down does not go up")
}

func TestManyProcessesMayCallUpAtOnce(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			config, err := pgxpool.ParseConfig(newDatabase(t).url)
			require.NoError(t, err)
			config.MaxConns = 8
			config.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			defer pool.Close()
			var wg sync.WaitGroup
			errs := make([]error, 24)
			for i := range errs {
				wg.Go(func() {
					if _, errs[i] = migrations.Version(t.Context(), pool); errs[i] == nil { // it fills the session's caches
						errs[i] = migrations.Up(t.Context(), pool)
					}
				})
			}
			wg.Wait()
			for _, err := range errs {
				require.NoError(t, err)
			}
			require.Equal(t, migrations.Latest, version(t, pool))
		})
	}
}

func TestUpIsAllOrNothing(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	require.NoError(t, migrations.Up(t.Context(), db, migrations.To(1)))
	db.exec(t, "CREATE TABLE fencing.operation ()") // in the way of the third step
	before := db.catalog(t)
	err := migrations.Up(t.Context(), db)
	require.ErrorContains(t, err, `migrations: up of schema "fencing": operation: `)
	require.Equal(t, before, db.catalog(t))
	require.Equal(t, 1, version(t, db))
}

func TestUpInACallersTransactionGoesWithIt(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SET LOCAL lock_timeout = '4321ms'")
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), tx))
	require.Equal(t, migrations.Latest, version(t, tx))
	var timeout string
	require.NoError(t, tx.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&timeout))
	require.Equal(t, "4321ms", timeout, "the caller's own setting is back")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 0, version(t, db))
}

func TestAFailedUpLeavesACallersTransactionUsable(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec(t, "CREATE SCHEMA fencing")
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, migrations.Up(t.Context(), tx), "is not a fence schema; choose another with WithSchema")
	_, err = tx.Exec(t.Context(), "CREATE TABLE mine ()")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
}

func TestUpWaitsForAnotherMigrationNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	other, err := connect(t, db.url).Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Rollback(context.WithoutCancel(t.Context()))) }()
	require.NoError(t, migrations.Up(t.Context(), other))

	start := time.Now()
	err = migrations.Up(t.Context(), db, migrations.WithLockTimeout(100*time.Millisecond))
	require.ErrorContains(t, err, "waiting for another migration")
	require.Less(t, time.Since(start), 5*time.Second)
	require.Equal(t, 0, version(t, db))
}

func TestUpAndDownRefuseANewerSchema(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, "CREATE OR REPLACE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 99'")
	for _, do := range []func(context.Context, migrations.DBTX, ...migrations.Option) error{migrations.Up, migrations.Down} {
		err := do(t.Context(), db)
		require.ErrorIs(t, err, migrations.ErrNewer)
		require.ErrorContains(t, err, "the schema has version 99, this library knows 5")
	}
	require.Equal(t, 99, version(t, db))
}

func TestVersionSeesWhatAnotherToolInstalled(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for v := 1; v <= migrations.Latest; v++ {
		names, err := fs.Glob(migrations.FS, "*.up.sql")
		require.NoError(t, err)
		sql, err := migrations.FS.ReadFile(names[v-1])
		require.NoError(t, err)
		out, err := db.psql(t, string(sql))
		require.NoError(t, err, out)
		require.Equal(t, v, version(t, db), names[v-1])
	}
	require.NoError(t, migrations.Up(t.Context(), db))
	require.NoError(t, migrations.Down(t.Context(), db))
}

func TestAnyClientMayCallUpOfAnInstalledSchema(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	role := newRole(t, db)
	db.exec(t, "SET ROLE "+role)
	require.NoError(t, migrations.Up(t.Context(), db))
	require.Equal(t, migrations.Latest, version(t, db))
	require.Error(t, migrations.Down(t.Context(), db))
}

func TestDownRefusesWhileTablesAreProtected(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, `CREATE TABLE inventory (sku text); CREATE TABLE "Odd Table" (id int); CREATE TABLE log (day date) PARTITION BY LIST (day);
		CREATE TABLE log_default PARTITION OF log DEFAULT; CREATE TABLE free (id int)`)
	var downs []string
	for _, table := range []string{"inventory", `"Odd Table"`, "log"} {
		up, down := protect(t, table, migrations.ProtectOptions{Trigger: true})
		db.exec(t, up)
		downs = append(downs, down)
	}
	before := db.catalog(t)
	err := migrations.Down(t.Context(), db)
	require.ErrorIs(t, err, migrations.ErrProtected)
	require.ErrorContains(t, err, `: "Odd Table", inventory, log; take the protection off with "fencectl protect --down TABLE"`)
	require.Equal(t, before, db.catalog(t))
	require.NoError(t, migrations.Down(t.Context(), db, migrations.To(1)), "the triggers need no more than version 1")

	db.exec(t, strings.Join(downs, "\n"))
	require.NoError(t, migrations.Down(t.Context(), db))
}

func TestANilDatabaseIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	const nilDB = "the database is nil"
	for _, db := range []migrations.DBTX{nil, (*pgxpool.Pool)(nil), (*pgx.Conn)(nil)} {
		require.ErrorContains(t, migrations.Up(t.Context(), db), nilDB)
		require.ErrorContains(t, migrations.Down(t.Context(), db), nilDB)
		_, err := migrations.Version(t.Context(), db)
		require.ErrorContains(t, err, nilDB)
		_, err = migrations.Inspect(t.Context(), db, "x")
		require.ErrorContains(t, err, nilDB)
	}
	require.ErrorContains(t, migrations.UpDB(t.Context(), nil, "sqlite"), nilDB)
	require.ErrorContains(t, migrations.DownDB(t.Context(), nil, "mysql"), nilDB)
	_, err := migrations.VersionDB(t.Context(), nil, "postgres")
	require.ErrorContains(t, err, nilDB)
}

func TestOptionsAreValidated(t *testing.T) {
	t.Parallel()
	for want, opt := range map[string]migrations.Option{
		"option is nil":                     nil,
		"schema \"\": the name is empty":    migrations.WithSchema(""),
		`schema "pg_x" belongs to Postgres`: migrations.WithSchema("pg_x"),
		"has 64 bytes":                      migrations.WithSchema(strings.Repeat("x", 64)),
		"has a control character":           migrations.WithSchema("a\nb"),
		"would end the bodies":              migrations.WithSchema("a$fencing$b"),
		"there is no version 6":             migrations.To(migrations.Latest + 1),
		"there is no version -1":            migrations.To(-1),
		"lock timeout 0s is not between":    migrations.WithLockTimeout(0),
		"number 0 of the first migration":   migrations.StartAt(0),
	} {
		require.ErrorContains(t, migrations.Up(t.Context(), nil, opt), want)
		_, err := migrations.Render(migrations.Goose, opt)
		require.ErrorContains(t, err, want)
	}
}

func TestADeadContextChangesNothing(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pool, err := pgxpool.New(t.Context(), db.url)
	require.NoError(t, err)
	defer pool.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, migrations.Up(ctx, pool), context.Canceled)
	require.Equal(t, 0, version(t, pool))
}
