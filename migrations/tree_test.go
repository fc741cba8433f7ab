package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

// newLog has a table with partitions on two levels, one of whose columns come in
// another order.
func newLog(t *testing.T) database {
	t.Helper()
	db := newFenced(t)
	db.exec(t, `CREATE TABLE log (region text NOT NULL, n int NOT NULL, note text) PARTITION BY LIST (region);
		CREATE TABLE log_eu PARTITION OF log FOR VALUES IN ('eu');
		CREATE TABLE "Log US" (note text, n int NOT NULL, region text NOT NULL);
		ALTER TABLE log ATTACH PARTITION "Log US" FOR VALUES IN ('us');
		CREATE TABLE log_asia PARTITION OF log FOR VALUES IN ('asia') PARTITION BY RANGE (n);
		CREATE TABLE log_asia_1 PARTITION OF log_asia FOR VALUES FROM (0) TO (100);
		INSERT INTO log VALUES ('eu', 1), ('us', 2), ('asia', 3)`)
	return db
}

var byRegion = migrations.ProtectOptions{Trigger: true, Resource: "'log:' || region"}

func TestPartitionsAreProtectedByTheirRoot(t *testing.T) {
	t.Parallel()
	db := newLog(t)
	up, _ := protect(t, "log", byRegion)
	db.exec(t, up)
	for _, sql := range []string{
		"UPDATE log SET note = 'x' WHERE region = 'us'", `UPDATE "Log US" SET note = 'x'`, "DELETE FROM log_asia", "DELETE FROM log_asia_1",
		"INSERT INTO log VALUES ('eu', 9)", "INSERT INTO log_eu VALUES ('eu', 9)",
		"TRUNCATE log", "TRUNCATE log_eu", `TRUNCATE "Log US"`, "TRUNCATE log_asia", "TRUNCATE log_asia_1",
	} {
		db.refused(t, "UF004", sql)
		db.exec(t, "SET session_replication_role = replica")
		db.refused(t, "UF004", sql)
		db.exec(t, "RESET session_replication_role")
	}
	db.exec(t, db.holding(t, `UPDATE "Log US" SET note = 'x'; UPDATE log SET note = 'y' WHERE region = 'us'`, "log:us"))
	db.exec(t, db.holding(t, "UPDATE log SET note = 'z' WHERE region = 'asia'; INSERT INTO log_asia_1 VALUES ('asia', 9)", "log:asia"))
}

func TestMovingARowToAnotherPartitionNeedsBothFences(t *testing.T) {
	t.Parallel()
	db := newLog(t)
	up, _ := protect(t, "log", byRegion)
	db.exec(t, up)
	move := "UPDATE log SET region = 'asia' WHERE region = 'eu'"
	db.refused(t, "UF004", db.holding(t, move, "log:eu"))
	db.refused(t, "UF004", db.holding(t, move, "log:asia"))
	db.exec(t, db.holding(t, move, "log:eu", "log:asia"))
	require.Equal(t, "2", db.query(t, "SELECT count(*)::text FROM log_asia_1"))
}

func TestALaterPartitionIsProtectedToo(t *testing.T) {
	t.Parallel()
	db := newLog(t)
	up, _ := protect(t, "log", byRegion)
	db.exec(t, up)
	db.exec(t, `CREATE TABLE log_rest PARTITION OF log DEFAULT;
		CREATE TABLE log_af (LIKE log INCLUDING DEFAULTS); INSERT INTO log_af VALUES ('af', 1); ALTER TABLE log ATTACH PARTITION log_af FOR VALUES IN ('af')`)
	db.exec(t, "SET session_replication_role = replica")
	db.refused(t, "UF004", "INSERT INTO log_rest VALUES ('rest', 1)")
	db.refused(t, "UF004", "UPDATE log_af SET n = 2")
	db.exec(t, "RESET session_replication_role; "+up)
	db.refused(t, "UF004", "TRUNCATE log_rest")
	db.refused(t, "UF004", "TRUNCATE log_af")
}

func TestDownRestoresAPartitionedTable(t *testing.T) {
	t.Parallel()
	db := newLog(t)
	before, dump := db.catalog(t), db.dump(t)
	up, down := protect(t, "log", byRegion)
	db.exec(t, up)
	protected := db.catalog(t)
	db.exec(t, up)
	require.Equal(t, protected, db.catalog(t))
	db.exec(t, down)
	require.Equal(t, before, db.catalog(t))
	require.Equal(t, dump, db.dump(t))
	db.exec(t, up)
	db.exec(t, "ALTER TABLE log DETACH PARTITION log_eu")
	db.exec(t, down)
	require.ErrorContains(t, migrations.Down(t.Context(), db), "tables are still protected: log_eu;") // its TRUNCATE trigger is its own
}

func TestChildrenOfInheritsAreProtectedOneByOne(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, `CREATE TABLE item (sku text NOT NULL, stock int); CREATE TABLE "Book" (isbn text) INHERITS (item); CREATE TABLE novel () INHERITS ("Book");
		INSERT INTO item VALUES ('i', 1); INSERT INTO "Book" VALUES ('b', 1); INSERT INTO novel VALUES ('n', 1)`)
	before, dump := db.catalog(t), db.dump(t)
	up, down := protect(t, "item", migrations.ProtectOptions{Trigger: true, Resource: "sku"})
	db.exec(t, up)
	for _, table := range []string{"item", `"Book"`, "novel"} {
		for _, sql := range []string{"UPDATE " + table + " SET stock = 2", "DELETE FROM ONLY " + table, "INSERT INTO " + table + " VALUES ('x')", "TRUNCATE ONLY " + table} {
			db.refused(t, "UF004", sql)
			db.exec(t, "SET session_replication_role = replica")
			db.refused(t, "UF004", sql)
			db.exec(t, "RESET session_replication_role")
		}
	}
	db.exec(t, db.holding(t, "UPDATE item SET stock = 2", "i", "b", "n"))

	db.exec(t, "CREATE TABLE comic () INHERITS (item)")
	db.exec(t, "INSERT INTO comic VALUES ('c')") // nobody passes triggers on to it
	db.exec(t, up)
	db.refused(t, "UF004", "UPDATE comic SET stock = 2")
	db.exec(t, "DROP TABLE comic; "+down)
	require.Equal(t, before, db.catalog(t))
	require.Equal(t, dump, db.dump(t))
}
