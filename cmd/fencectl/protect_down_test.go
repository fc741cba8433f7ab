package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// "No longer protected" is what the catalog says, not what was asked for.
func TestProtectDownOfAnotherSchemaChangesNothing(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	ok(t, "migrate", "up", "--schema=other", pg)
	db.exec(t, "CREATE TABLE inventory (sku text)")
	ok(t, "protect", "inventory", "--resource=sku", "--trigger", pg)
	before := db.shape(t)

	fails(t, 2, `protect --down inventory: the fence schema "nope" is not in this database, but inventory has triggers of schema "fencing"; nothing was changed; run it with --schema fencing`,
		"protect", "inventory", "--down", "--schema=nope", pg)
	fails(t, 2, `protect --down inventory: inventory has triggers of the fence schema "fencing", not of "other"; nothing was changed; run it with --schema fencing`,
		"protect", "inventory", "--down", "--schema=other", "--json", pg)
	fails(t, 2, `protect inventory: inventory has triggers of the fence schema "fencing", not of "other"; nothing was changed; run it with --schema fencing, or take them off with it first`,
		"protect", "inventory", "--resource=sku", "--trigger", "--schema=other", pg)
	require.Equal(t, before, db.shape(t))
	require.Equal(t, "UF004", db.sqlState(t, "INSERT INTO inventory VALUES ('a')"))

	ok(t, "protect", "inventory", "--down", "--schema=fencing", pg)
	require.Empty(t, db.sqlState(t, "INSERT INTO inventory VALUES ('a')"))
}

// What is printed is run elsewhere, where nobody has looked before.
func TestProtectDownThatIsPrintedRefusesWhatItWasNotMadeFor(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	db.exec(t, "CREATE TABLE inventory (sku text)")
	ok(t, "protect", "inventory", "--resource=sku", "--trigger", pg)
	before := db.shape(t)
	refused := func(says string, args ...string) {
		t.Helper()
		_, err := db.conn.Exec(t.Context(), ok(t, append([]string{"protect", "inventory", "--down", "--print"}, args...)...))
		require.ErrorContains(t, err, says)
	}
	refused(`inventory has no trigger of the fence schema nope, but of fencing; nothing was changed`, "--schema=nope")
	refused(`inventory has no trigger of the fence schema nope, but of fencing; nothing was changed`, "--schema=nope", "--no-column")
	require.Equal(t, before, db.shape(t), "the column too")

	db.exec(t, ok(t, "protect", "inventory", "--down", "--print"))
	refused(`inventory has neither a trigger of the fence schema "Odd Fence", nor a version column "my ver" that was added with one`, "--schema=Odd Fence", "--column=my ver")
	refused(`inventory has no trigger of the fence schema fencing; nothing was changed`, "--no-column")
	ok(t, "protect", "inventory", "--resource=sku", pg) // the column alone
	db.exec(t, ok(t, "protect", "inventory", "--down", "--print"))
	require.Equal(t, "inventory.sku text ", db.shape(t))
}

func TestProtectDownNamesAnOddSchemaForTheShell(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg, odd := "--postgres="+db.url, "--schema=Odd Fence"
	ok(t, "migrate", "up", odd, pg)
	db.exec(t, "CREATE TABLE inventory (sku text)")
	ok(t, "protect", "inventory", "--resource=sku", "--trigger", odd, pg)
	fails(t, 2, "run it with --schema 'Odd Fence'", "protect", "inventory", "--down", pg)
	require.Equal(t, "UF004", db.sqlState(t, "INSERT INTO inventory VALUES ('a')"))
}

func TestProtectDownOfWhatWasNotProtected(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	db.exec(t, "CREATE TABLE inventory (sku text, fence_token bigint NOT NULL DEFAULT 0); CREATE VIEW shelf AS SELECT * FROM inventory")
	before := db.shape(t)
	require.Equal(t, "inventory was not protected\n", ok(t, "protect", "inventory", "--down", pg))
	require.Equal(t, "inventory was not protected\n", ok(t, "protect", "inventory", "--down", "--schema=nope", pg))
	require.Equal(t, "shelf was not protected\n", ok(t, "protect", "shelf", "--down", pg))
	require.JSONEq(t, `{"table":"inventory","protected":false,"trigger":false}`, ok(t, "protect", "inventory", "--down", "--json", pg))
	require.Equal(t, before, db.shape(t))
}

func TestProtectDownSaysWhichColumnStays(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	db.exec(t, "CREATE TABLE inventory (sku text)")
	before := db.shape(t)
	ok(t, "protect", "inventory", "--resource=sku", "--trigger", "--column=my ver", pg)

	require.Equal(t, "inventory is no longer protected; its column \"my ver\" stays: name it with --column 'my ver' to drop it\n",
		ok(t, "protect", "inventory", "--down", pg))
	require.Empty(t, db.sqlState(t, "INSERT INTO inventory VALUES ('a')"))
	require.Contains(t, db.shape(t), "my ver")

	require.Equal(t, "inventory was not protected by a trigger; its column \"my ver\" stays: name it with --column 'my ver' to drop it\n",
		ok(t, "protect", "inventory", "--down", pg))
	require.JSONEq(t, `{"table":"inventory","protected":false,"trigger":false,"columns":["my ver"]}`, ok(t, "protect", "inventory", "--down", "--json", pg))

	require.Equal(t, "inventory is no longer protected\n", ok(t, "protect", "inventory", "--down", "--column=my ver", pg))
	require.Equal(t, before, db.shape(t))
}

// A part of a table has triggers of its own beside those of the whole.
func TestProtectDownOfAPartNamesTheWhole(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	db.exec(t, `CREATE TABLE "Parts" (sku text) PARTITION BY LIST (sku); CREATE TABLE parts_a PARTITION OF "Parts" FOR VALUES IN ('a');
		CREATE TABLE base (sku text); CREATE TABLE derived () INHERITS (base)`)
	ok(t, "protect", `"Parts"`, "--resource=sku", "--trigger", pg)
	ok(t, "protect", "base", "--resource=sku", "--trigger", pg)
	before := db.shape(t)
	fails(t, 2, `protect --down parts_a: it is protected as a part of "Parts"; nothing was changed; take the protection off that`, "protect", "parts_a", "--down", pg)
	fails(t, 2, "protect --down derived: it is protected as a part of base", "protect", "derived", "--down", pg)
	require.Equal(t, before, db.shape(t))
}

func TestProtectWithoutATriggerSaysThatOneIsThere(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	db.exec(t, "CREATE TABLE inventory (sku text)")
	ok(t, "protect", "inventory", "--resource=sku", "--trigger", pg)
	before := db.shape(t)
	require.Equal(t, "inventory has its version column; its trigger from before stays as it was: writes need the fence sku (take it off with --down, change it with --trigger)\n",
		ok(t, "protect", "inventory", "--resource='other:' || sku", pg))
	require.JSONEq(t, `{"table":"inventory","protected":true,"trigger":true,"resource":"sku"}`, ok(t, "protect", "inventory", "--resource=sku", "--json", pg))
	require.Equal(t, before, db.shape(t))
	ok(t, "protect", "inventory", "--resource='other:' || sku", "--trigger", pg)
	require.Contains(t, db.shape(t), "other:")
}

func TestProtectSaysWhereThereIsNoSuchTable(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	for _, way := range []string{"--resource=sku", "--down"} {
		r := fails(t, 2, "there is no table inventroy in postgres://", "protect", "inventroy", way, pg)
		require.Contains(t, r.stderr, `; its search_path is "$user", public: name a table of another schema as schema.table`)
		r = fails(t, 2, "there is no table nowhere.inventory in postgres://", "protect", "nowhere.inventory", way, pg)
		require.NotContains(t, r.stderr, "search_path")
	}
}

func TestProtectExplainsAResourceThatIsNoExpression(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	db.exec(t, "CREATE TABLE inventory (sku text)")
	before := db.shape(t)
	const quotes = `write text in single quotes: --resource "'inventory:' || sku"`
	for resource, says := range map[string]string{
		"inventory:sku":    `protect inventory: --resource "inventory:sku" is not a SQL expression; ` + quotes,
		"inventory:sku-42": `--resource "inventory:sku-42" is not a SQL expression; ` + quotes,
		"sku ||":           `--resource "sku ||" is not a SQL expression; ` + quotes,
		"nosuch":           `protect inventory: inventory has no column nosuch`,
		"NEW.nosuch":       `inventory has no column nosuch`,
		`sku || "No Such"`: `inventory has no column No Such`,
	} {
		fails(t, 2, says, "protect", "inventory", "--resource="+resource, "--trigger", pg)
		require.Equal(t, before, db.shape(t), "half done: %s", resource)
	}
}

// A table that was protected by itself can become a child later.
func TestProtectDownSaysWhatOfAnotherSchemaIsLeft(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	ok(t, "migrate", "up", "--schema=other", pg)
	db.exec(t, "CREATE TABLE base (sku text); CREATE TABLE derived (sku text)")
	ok(t, "protect", "base", "--resource=sku", "--trigger", pg)
	ok(t, "protect", "derived", "--resource=sku", "--trigger", "--schema=other", pg)
	db.exec(t, "ALTER TABLE derived INHERIT base")
	require.Equal(t, "base is still protected by triggers of the fence schema other; run it again with --schema other\n", ok(t, "protect", "base", "--down", pg))
	require.JSONEq(t, `{"table":"base","protected":false,"trigger":false}`, ok(t, "protect", "base", "--down", "--schema=other", "--json", pg))
	require.Empty(t, db.sqlState(t, "INSERT INTO derived VALUES ('a')"))
}
