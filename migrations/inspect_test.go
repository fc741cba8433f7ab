package migrations_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

// A service may ask at its start whether its table is protected.
func ExampleInspect() {
	withPool("[fencing] [fence_token] <nil>", func(ctx context.Context, pool *pgxpool.Pool) {
		up, _, err := migrations.Protect("inventory", migrations.ProtectOptions{Trigger: true, Resource: "'inventory:' || sku"})
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := migrations.Up(ctx, pool); err != nil {
			fmt.Println(err)
			return
		}
		if _, err := pool.Exec(ctx, "CREATE TABLE inventory (sku text);"+up); err != nil {
			fmt.Println(err)
			return
		}
		p, err := migrations.Inspect(ctx, pool, "inventory")
		fmt.Println(p.Schemas, p.Columns, err)
	})
	// Output: [fencing] [fence_token] <nil>
}

func TestInspectReadsWhatIsThere(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	require.NoError(t, migrations.Up(t.Context(), db, migrations.WithSchema("Odd Fence")))
	db.exec(t, `CREATE SCHEMA app; CREATE TABLE app."Odd Table" (sku text, fence_token bigint NOT NULL DEFAULT 0);
		CREATE TABLE log (region text) PARTITION BY LIST (region); CREATE TABLE log_eu PARTITION OF log FOR VALUES IN ('eu'); CREATE TABLE item (sku text)`)
	inspect := func(table string) migrations.Protection {
		p, err := migrations.Inspect(t.Context(), db, table)
		require.NoError(t, err, table)
		return p
	}
	const odd = `APP."Odd Table"`
	nothing := inspect(odd)
	require.Empty(t, nothing.Schemas)
	require.Empty(t, nothing.Columns, "the column is the application's own")
	require.Empty(t, nothing.Parent)

	up, down := protect(t, odd, migrations.ProtectOptions{Trigger: true, Schema: "Odd Fence", Column: "Ver 1"})
	db.exec(t, up)
	require.Equal(t, migrations.Protection{Schemas: []string{"Odd Fence"}, Columns: []string{"Ver 1"}}, inspect(odd))
	more, _ := protect(t, odd, migrations.ProtectOptions{Column: "ver2"})
	db.exec(t, more)
	require.Equal(t, []string{"Ver 1", "ver2"}, inspect(odd).Columns)
	db.exec(t, down)
	require.Equal(t, migrations.Protection{Schemas: []string{}, Columns: []string{"ver2"}}, inspect(odd))

	up, _ = protect(t, "log", migrations.ProtectOptions{Trigger: true})
	require.Empty(t, inspect("log_eu").Parent, "its parent has no triggers yet")
	db.exec(t, up)
	require.Equal(t, []string{"fencing"}, inspect("log").Schemas)
	require.Empty(t, inspect("log").Parent)
	require.Equal(t, "log", inspect("log_eu").Parent)

	// What only looks like a trigger of ours.
	db.exec(t, `CREATE FUNCTION app.refuse_write() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER audit AFTER INSERT ON item EXECUTE FUNCTION app.refuse_write();
		CREATE FUNCTION app.audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER fencing_insert AFTER INSERT ON item EXECUTE FUNCTION app.audit()`)
	require.Empty(t, inspect("item").Schemas)
}

func TestInspectOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for _, table := range []string{"inventory", "nowhere.inventory", `"Inventory"`} {
		_, err := migrations.Inspect(t.Context(), db, table)
		require.ErrorIs(t, err, migrations.ErrNoTable)
		require.ErrorContains(t, err, "migrations: inspect ")
	}
	_, err := migrations.Inspect(t.Context(), db, "odd table")
	require.ErrorContains(t, err, "unexpected")
	require.NotErrorIs(t, err, migrations.ErrNoTable)
}

// It is asked before and after a change, in the transaction of that.
func TestInspectLeavesATransactionAsItWas(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	up, _ := protect(t, "inventory", migrations.ProtectOptions{Trigger: true})
	_, err = tx.Exec(t.Context(), "CREATE TABLE inventory (sku text);"+up)
	require.NoError(t, err)
	p, err := migrations.Inspect(t.Context(), tx, "inventory")
	require.NoError(t, err)
	require.Equal(t, []string{"fencing"}, p.Schemas)
	_, err = migrations.Inspect(t.Context(), tx, "nosuch")
	require.ErrorIs(t, err, migrations.ErrNoTable)
	require.NoError(t, tx.Commit(t.Context()))
	p, err = migrations.Inspect(t.Context(), db, "inventory")
	require.NoError(t, err)
	require.Equal(t, []string{"fencing"}, p.Schemas)
}
