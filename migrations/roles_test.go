package migrations_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

// newRole makes a role without any rights of its own, and lets it go again.
func newRole(t *testing.T, db database) string {
	t.Helper()
	role := "fencing_" + strings.ToLower(rand.Text())
	db.exec(t, "CREATE ROLE "+role)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := db.Exec(ctx, "RESET ROLE; DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
	})
	return role
}

// leaseCalls goes through every function of the leases.
const leaseCalls = `SELECT fencing.lease_acquire('r', 'l', 'holder', 9000, 0, 100, 9000);
	SELECT fencing.lease_renew('{r}', '{l}', '{9000}', 'joined'); SELECT * FROM fencing.lease_holding('r');
	SELECT fencing.lease_acquire_in_turn('r', 'k', 'holder', 9000, 0, 100, NULL, 9000);
	SELECT fencing.lease_release('r', 'l', 'joined'); SELECT fencing.lease_release('r', 'l', 'l'); SELECT fencing.lease_release('r', 'l', 'l'); SELECT fencing.lease_withdraw('r', 'k')`

func TestAPlainRoleHasTheFunctionsAndNotTheTables(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, "SET ROLE "+newRole(t, db))
	db.exec(t, "SELECT fencing.raise('r', 1, 'n', 'holder')")
	db.exec(t, "SELECT fencing.enter('r', 1, 'n'); SELECT fencing.enter_all('{r}', '{1}', '{n}')")
	db.exec(t, "SELECT fencing.issue('r', 'm'); SELECT fencing.next_token('r'); SELECT fencing.once('o')")
	db.exec(t, leaseCalls)
	for _, sql := range []string{
		"INSERT INTO fencing.fence VALUES ('x', 1, 'n', '', now())", "UPDATE fencing.fence SET token = 1", "DELETE FROM fencing.fence",
		"TRUNCATE fencing.fence", "SELECT FROM fencing.fence", "UPDATE fencing.sequence SET token = 0", "DELETE FROM fencing.operation",
		"SELECT fencing.close_gate('r', 'n', 0)", "UPDATE fencing.lease SET nonce = 'mine'", "UPDATE fencing.lease_counter SET token = 0", "DELETE FROM fencing.lease_queue", "DELETE FROM fencing.lease_spent",
		"SELECT fencing.lease_token('r', 0, 0)", "SELECT fencing.lease_wake('r')", "CREATE TABLE fencing.mine ()", "DROP FUNCTION fencing.version()",
	} {
		db.refused(t, "42501", sql)
	}
}

// With the nonce of the fence in force anyone could enter in its holder's place.
func TestTheNonceOfTheFenceInForceIsItsHoldersOwn(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, "SELECT fencing.raise('r', 7, 'secret', 'A')")
	db.exec(t, "SET ROLE "+newRole(t, db))
	raise := func(token, nonce string) string {
		return db.query(t, "SELECT concat_ws(' ', token, nonce, holder) FROM fencing.raise('r', "+token+", '"+nonce+"', 'B')")
	}
	require.Equal(t, "7  A", raise("1", "n"))
	require.Equal(t, "7  A", raise("7", "n"))
	require.Equal(t, "7 secret A", raise("7", "secret"), "a repeated raise")
	require.NotContains(t, db.refused(t, "UF001", "SELECT fencing.enter('r', 7, 'n')").Detail, "secret")
	require.Equal(t, "8 n B", raise("8", "n"))

	// The later fence comes while the raise waits for the gate.
	db.exec(t, "RESET ROLE; BEGIN; SELECT fencing.raise('r', 10, 'secret', 'A')")
	waiting := connect(t, db.url)
	answer := make(chan string, 1)
	go func() {
		var got string
		err := waiting.QueryRow(context.Background(), "SELECT concat_ws(' ', token, nonce, holder) FROM fencing.raise('r', 9, 'n', 'B')").Scan(&got)
		answer <- fmt.Sprint(got, err)
	}()
	require.Eventually(t, func() bool {
		return db.query(t, "SELECT count(*)::text FROM pg_locks JOIN pg_database d ON d.oid = database WHERE datname = current_database() AND NOT granted") == "1"
	}, 20*time.Second, 2*time.Millisecond)
	db.exec(t, "COMMIT")
	require.Equal(t, "10  A<nil>", <-answer)
}

func TestDefaultPrivilegesDoNotOpenTheTables(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	role := newRole(t, db)
	db.exec(t, "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO "+role+"; ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
	require.NoError(t, migrations.Up(t.Context(), db))
	db.exec(t, "SET ROLE "+role+"; SELECT fencing.raise('r', 1, 'n'); SELECT fencing.enter('r', 1, 'n'); SELECT fencing.next_token('r'); SELECT fencing.once('o'); "+leaseCalls)
	for _, table := range []string{"fence", "sequence", "operation", "lease", "lease_counter", "lease_queue", "lease_spent"} {
		db.refused(t, "42501", "DELETE FROM fencing."+table)
		db.refused(t, "42501", "SELECT FROM fencing."+table)
	}
}

func TestARoleThatMayNotMigrateIsToldWhoMay(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	role := newRole(t, db)
	schema := migrations.WithSchema("Other")
	db.exec(t, "SET ROLE "+role)
	err := migrations.Up(t.Context(), db)
	require.ErrorContains(t, err, `; run "fencectl migrate up" as the owner of the database`)
	require.ErrorContains(t, migrations.Up(t.Context(), db, schema), `; run "fencectl migrate up --schema Other" as the owner of the database`)

	config := db.Config().Copy()
	config.RuntimeParams["role"] = role
	pool := stdlib.OpenDB(*config)
	defer func() { require.NoError(t, pool.Close()) }()
	upDB := func() error { return migrations.UpDB(t.Context(), pool, "postgres") }
	require.ErrorContains(t, upDB(), `; run "fencectl migrate up" as the owner of the database`)

	db.exec(t, "RESET ROLE")
	require.NoError(t, migrations.Up(t.Context(), db))
	db.exec(t, "SET ROLE "+role)
	require.NoError(t, migrations.Up(t.Context(), db), "there is nothing left to do")
	require.NoError(t, upDB())
	require.ErrorContains(t, migrations.Down(t.Context(), db), `; run "fencectl migrate down" as the owner of the database`)
}

// A row that is missing is NULL, and NULL is not distinct from NULL.
func TestNULLEntersNothing(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, "SELECT fencing.raise('r', 1, 'n')")
	for _, call := range []string{
		"enter('unknown', NULL, NULL)", "enter('r', NULL, NULL)", "enter('r', 1, NULL)", "enter('r', NULL, 'n')", "enter(NULL, NULL, NULL)",
		"enter_all('{unknown}', '{NULL}', '{NULL}')", "enter_all('{r,unknown}', '{1,NULL}', '{n,NULL}')", "enter_all('{r,unknown}', '{1}', '{n}')",
		"enter_all(NULL, NULL, NULL)", "enter_all('{NULL}', '{NULL}', '{NULL}')",
	} {
		_, err := db.Exec(t.Context(), "BEGIN; SELECT fencing."+call)
		require.Error(t, err, call)
		db.exec(t, "ROLLBACK")
	}
}

func TestS31_RaiseRefusesASnapshotOlderThanItself(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	for _, level := range []string{"REPEATABLE READ", "SERIALIZABLE"} {
		for _, call := range []string{"fencing.raise('r', 1, 'n')", "fencing.issue('r', 'n')"} {
			err := db.refused(t, "25001", "BEGIN ISOLATION LEVEL "+level+"; SELECT "+call)
			require.Contains(t, err.Message, "not at "+level)
		}
	}
	require.Equal(t, "0", db.query(t, "SELECT count(*)::text FROM fencing.fence"))
}

func TestFunctionsAreSafeFromACallersSearchPath(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	require.Equal(t, "", db.query(t, `SELECT coalesce(string_agg(proname, ' '), '') FROM pg_proc
		WHERE pronamespace = 'fencing'::regnamespace AND prosecdef AND proconfig IS DISTINCT FROM ARRAY['search_path=pg_catalog, pg_temp']`))
	require.NoError(t, migrations.Down(t.Context(), db))
}
