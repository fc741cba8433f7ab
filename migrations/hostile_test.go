package migrations_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

// betterFits are signatures that arguments of the catalogs fit better than those of
// Postgres' own functions, each with what it returns.
var betterFits = map[string]string{
	"starts_with(name, text)": "boolean", "starts_with(name, name)": "boolean", "quote_ident(name)": "text",
	"col_description(oid, smallint)": "text", "format(text, text, regclass)": "text", "format(text, text, text)": "text", "format(text, text)": "text",
	"format(text, name, text)": "text", "format(text, name, regclass)": "text", "format(text, name)": "text", "format(text, regclass)": "text",
	"pg_partition_root(oid)": "regclass", "replace(text, text, varchar)": "text", "strpos(text, varchar)": "int",
}

// Whoever may create functions in a schema of the search path, up to Postgres 14
// everybody in public, must not get one of them called by the role that migrates.
func TestNobodysOwnFunctionIsCalled(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	const captured = " LANGUAGE plpgsql AS 'BEGIN RAISE ''captured''; END'; "
	hostile := ""
	for signature, result := range betterFits {
		hostile += "CREATE FUNCTION public." + signature + " RETURNS " + result + captured
	}
	for _, right := range []string{"regclass", "regtype", "regprocedure"} {
		hostile += "CREATE FUNCTION public.equal(oid, " + right + ") RETURNS boolean" + captured
		for _, operator := range []string{"=", "<>"} {
			hostile += "CREATE OPERATOR public." + operator + " (LEFTARG = oid, RIGHTARG = " + right + ", FUNCTION = public.equal); "
		}
	}
	hostile += "CREATE FUNCTION public.joined(text, regclass) RETURNS text" + captured +
		"CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = regclass, FUNCTION = public.joined); " +
		"CREATE FUNCTION public.kept(text, text) RETURNS text LANGUAGE sql AS 'SELECT $1'; CREATE AGGREGATE public.array_agg(text) (SFUNC = public.kept, STYPE = text); "
	db.exec(t, hostile)

	require.NoError(t, migrations.Up(t.Context(), db))
	db.exec(t, `CREATE TABLE log (region text) PARTITION BY LIST (region); CREATE TABLE log_eu PARTITION OF log FOR VALUES IN ('eu');
		CREATE TABLE item (sku text); CREATE TABLE book () INHERITS (item); CREATE TABLE odd (fence_token int)`)
	downs := ""
	for table, expr := range map[string]string{"log": "region", "item": "'item:' || sku"} {
		up, down := protect(t, table, migrations.ProtectOptions{Trigger: true, Resource: expr})
		db.exec(t, up)
		db.exec(t, up)
		downs += down
	}
	for table, reason := range map[string]string{"log_eu": "it is a partition of log", "book": "it is a child of item", "odd": "its column fence_token is there already"} {
		up, _ := protect(t, table, migrations.ProtectOptions{Trigger: true})
		require.Contains(t, db.refused(t, "42809", up).Message, reason)
	}
	p, err := migrations.Inspect(t.Context(), db, "log_eu")
	require.NoError(t, err)
	require.Equal(t, "log", p.Parent)
	require.ErrorIs(t, migrations.Down(t.Context(), db), migrations.ErrProtected)
	db.exec(t, downs)
	require.NoError(t, migrations.Down(t.Context(), db))
	require.False(t, strings.Contains(db.query(t, "SELECT coalesce(string_agg(tgname, ' '), '') FROM pg_trigger"), "fencing"))
}

// A raise that the server forgets in a crash or a failover lets the earlier holder
// in again, so it does not depend on how careless the session is.
func TestS39_ARaiseIsDurableThoughTheSessionsCommitsAreNot(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	for session, want := range map[string]string{"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"} {
		for _, call := range []string{"raise('r " + session + "', 1, 'n')", "issue('i', '" + session + "')", "next_token('r')"} {
			db.exec(t, "BEGIN; SET LOCAL synchronous_commit = "+session+"; SELECT fencing."+call)
			require.Equal(t, want, db.query(t, "SHOW synchronous_commit"), "%s at %s", call, session)
			db.exec(t, "COMMIT")
		}
	}
}
