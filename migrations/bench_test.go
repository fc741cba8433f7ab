package migrations_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

// BenchmarkProtectedUpdate updates 10,000 rows by one statement, from within
// their fence, and reports the time per row: the mean, and that of the fastest
// update, which says more on a busy machine.
func BenchmarkProtectedUpdate(b *testing.B) {
	const rows = 10_000
	for _, c := range []struct {
		name string
		o    migrations.ProtectOptions
	}{
		{name: "bare"},
		{"trigger", migrations.ProtectOptions{Trigger: true}},
		{"trigger-resource", migrations.ProtectOptions{Trigger: true, Resource: "'inventory:' || sku"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			db := newFenced(b)
			db.exec(b, `CREATE TABLE inventory (id int PRIMARY KEY, sku text NOT NULL, stock bigint NOT NULL, note text) WITH (autovacuum_enabled = off);
				INSERT INTO inventory SELECT i, 'sku-42', 1, repeat('x', 40) FROM generate_series(1, 10000) i`)
			up, _ := protect(b, "inventory", c.o)
			db.exec(b, up)
			db.exec(b, "SELECT fencing.raise('inventory:sku-42', 1, 'n')")
			var spent, fastest time.Duration
			for b.Loop() {
				db.exec(b, "VACUUM inventory") // so that every round finds the same table
				db.exec(b, "BEGIN; SELECT fencing.enter('inventory:sku-42', 1, 'n')")
				start := time.Now()
				tag, err := db.Exec(b.Context(), "UPDATE inventory SET stock = stock + 1")
				took := time.Since(start)
				spent += took
				if fastest == 0 || took < fastest {
					fastest = took
				}
				require.NoError(b, err)
				require.EqualValues(b, rows, tag.RowsAffected())
				db.exec(b, "COMMIT")
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(spent.Nanoseconds())/1e3/float64(b.N)/rows, "µs/row")
			b.ReportMetric(float64(fastest.Nanoseconds())/1e3/rows, "min-µs/row")
		})
	}
}
