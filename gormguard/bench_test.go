package gormguard_test

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/internal/servertest"
)

// BenchmarkUpdate updates one row by turns without and with the plugin, in one
// run, so that both meet the same machine, and reports how the guarded way does in
// comparison: throughput (more is better) and allocations (less is better). The
// times and their ratio are medians; undisturbed-ratio is of the fastest tenth of
// the turns, which what else the machine does has hit least. Postgres and MariaDB
// flush at a commit, as they do where nobody has told them not to; SQLite does not.
func BenchmarkUpdate(b *testing.B) {
	for _, e := range engines {
		for _, mode := range []string{"fence", "row", "both"} {
			b.Run(e.name+"/"+mode, func(b *testing.B) {
				d := newDatabase(b, e, nil, gormguard.WithMode(modes[mode]))
				require.NoError(b, d.bare.Create(&Boss{ID: 1}).Error)
				ctx := d.raised("boss", 7)
				plain, err := gorm.Open(dialector(e, d.sql), quiet())
				require.NoError(b, err)
				const turn = 20 // updates, to a value that changes: MySQL counts changed rows
				written := 0
				names := [...]string{"x", "y"}
				update := func(db *gorm.DB) (time.Duration, uint64) {
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					start := time.Now()
					for range turn {
						written++
						if err := db.WithContext(ctx).Model(&Boss{ID: 1}).Update("name", names[written%2]).Error; err != nil {
							b.Fatal(err)
						}
					}
					took := time.Since(start)
					runtime.ReadMemStats(&after)
					return took, after.Mallocs - before.Mallocs
				}
				update(plain)
				update(d.db)
				var took [2][]time.Duration
				var allocations [2]uint64
				for b.Loop() {
					for i, db := range []*gorm.DB{plain, d.db} {
						t, n := update(db)
						took[i] = append(took[i], t)
						allocations[i] += n
					}
				}
				at := func(i int, quantile float64) float64 {
					slices.Sort(took[i])
					return float64(took[i][int(float64(len(took[i]))*quantile)].Nanoseconds()) / 1000 / turn
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(at(0, 0.5), "plain-µs")
				b.ReportMetric(at(1, 0.5), "guarded-µs")
				b.ReportMetric(at(0, 0.5)/at(1, 0.5), "throughput-ratio")
				b.ReportMetric(at(0, 0.1)/at(1, 0.1), "undisturbed-ratio")
				b.ReportMetric(float64(allocations[0])/float64(turn*b.N), "plain-allocs")
				b.ReportMetric(float64(allocations[1])/float64(allocations[0]), "allocs-ratio")
			})
		}
	}
}

// A counter counts what is sent to Postgres.
type counter struct{ queries atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	count := &counter{}
	config, err := pgx.ParseConfig(servertest.Postgres(t))
	require.NoError(t, err)
	config.Tracer = count
	pool := stdlib.OpenDB(*config)
	counted := engine{"postgres", func(testing.TB) gorm.Dialector { return postgres.New(postgres.Config{Conn: pool}) }}
	d := newBare(t, counted)
	for mode, extra := range map[string]int64{"fence": 1, "row": 0, "both": 1} {
		db, err := gorm.Open(postgres.New(postgres.Config{Conn: pool}), quiet())
		require.NoError(t, err)
		d.plugin = gormguard.New(gormguard.WithModels(models[:len(models)-1]...), gormguard.WithMode(modes[mode]))
		require.NoError(t, db.Use(d.plugin))
		d.db = db
		c := d.cell(int(extra)+len(mode), fresh)
		sent := func(run func(db *gorm.DB)) int64 {
			before := count.queries.Load()
			run(db.WithContext(c.ctx))
			return count.queries.Load() - before
		}
		update := func(db *gorm.DB) { require.NoError(t, db.Model(&Pair{A: 1, B: 1}).Update("value", 3).Error) }
		require.Equal(t, 3+extra, sent(update), "%s: BEGIN, UPDATE, COMMIT", mode)
		require.Equal(t, 3+extra, sent(func(db *gorm.DB) {
			require.NoError(t, db.Model(&Pair{}).Where("value > 0").Update("value", 3).Error)
		}), "%s: of several rows", mode)
		require.Equal(t, 4+extra, sent(func(db *gorm.DB) { require.NoError(t, db.Save(c.loaded(1)).Error) })-1, "%s: with the read of the test, and that of the row's resource", mode)
		require.Equal(t, 5+extra, sent(func(db *gorm.DB) {
			require.NoError(t, db.Transaction(func(tx *gorm.DB) error { update(tx); update(tx); update(tx); return nil }))
		}), "%s: a transaction enters once", mode)
		require.Equal(t, int64(1), sent(func(db *gorm.DB) { require.NoError(t, db.Find(&[]Pair{}).Error) }), "%s: a read", mode)
		require.Equal(t, int64(3), sent(func(db *gorm.DB) { require.NoError(t, db.Model(&Tag{ID: 1}).Update("name", "x").Error) }), "%s: another table", mode)
	}
}
