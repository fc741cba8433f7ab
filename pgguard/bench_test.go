package pgguard_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/pgguard"
)

const clients = 8

// A rig has one client, one resource and one row per index.
type rig struct {
	pool     *pgxpool.Pool
	guard    *pgguard.Guard
	deferred *pgguard.Guard // WithDeferredBegin
	contexts []context.Context
	ids      []string
}

func newRig(b *testing.B, resources int, commit string) *rig {
	b.Helper()
	pool := newPool(b, servertest.Postgres(b), func(c *pgxpool.Config) {
		c.MaxConns = clients + 2
		c.ConnConfig.RuntimeParams["synchronous_commit"] = commit
	})
	install(b, pool)
	r := &rig{pool: pool, guard: newGuard(b, pool), deferred: newGuard(b, pool, pgguard.WithDeferredBegin())}
	for i := range clients {
		id := fmt.Sprintf("item %d", i%resources)
		if i < resources {
			_, err := pool.Exec(b.Context(), "insert into item values ($1, 0)", id)
			require.NoError(b, err)
			f := guard.Fence{Resource: id, Token: 1, Nonce: "n"}
			require.NoError(b, r.guard.Raise(b.Context(), f))
			r.contexts = append(r.contexts, guard.NewContext(b.Context(), f))
			r.ids = append(r.ids, id)
			continue
		}
		r.contexts, r.ids = append(r.contexts, r.contexts[i%resources]), append(r.ids, id)
	}
	return r
}

// A variant is one way to do a thing.
type variant struct {
	name string
	do   func(ctx context.Context, id string) error
}

// compare runs the variants by all clients in turns, so that all meet the same
// machine. It reports their throughputs, and the ratios to the first of them, which
// is the one without a guard.
func compare(b *testing.B, r *rig, variants ...variant) {
	const turn = 25
	all := func(do func(ctx context.Context, id string) error) time.Duration {
		start := time.Now()
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				for range turn {
					if err := do(r.contexts[i], r.ids[i]); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	for _, v := range variants {
		all(v.do) // prepares the statements
	}
	took := make([][]time.Duration, len(variants))
	for b.Loop() {
		for i, v := range variants {
			took[i] = append(took[i], all(v.do))
		}
	}
	median := func(d []time.Duration) float64 { slices.Sort(d); return d[len(d)/2].Seconds() / (clients * turn) }
	for i, v := range variants {
		b.ReportMetric(1/median(took[i]), v.name+"/s")
		if i > 0 {
			b.ReportMetric(median(took[0])/median(took[i]), v.name+"-ratio")
		}
	}
	b.ReportMetric(0, "ns/op")
}

const sell = "update item set stock = stock + 1 where id = $1"

// eachCommit runs a benchmark with commits that wait for the disk, as they should,
// and with commits that do not, where the guard's own work weighs most.
func eachCommit(b *testing.B, resources int, run func(b *testing.B, r *rig)) {
	for name, commit := range map[string]string{"durable": "on", "async": "off"} {
		b.Run(name, func(b *testing.B) { run(b, newRig(b, resources, commit)) })
	}
}

func benchmarkInTx(b *testing.B, resources int) {
	eachCommit(b, resources, func(b *testing.B, r *rig) {
		update := func(ctx context.Context, id string) func(pgx.Tx) error {
			return func(tx pgx.Tx) error { _, err := tx.Exec(ctx, sell, id); return err }
		}
		compare(b, r,
			variant{"unguarded", func(ctx context.Context, id string) error { return pgx.BeginFunc(ctx, r.pool, update(ctx, id)) }},
			variant{"guarded", func(ctx context.Context, id string) error { return r.guard.InTx(ctx, update(ctx, id)) }},
			variant{"deferred", func(ctx context.Context, id string) error { return r.deferred.InTx(ctx, update(ctx, id)) }})
	})
}

func BenchmarkInTxOwnResources(b *testing.B) { benchmarkInTx(b, clients) }

func BenchmarkInTxHotResource(b *testing.B) { benchmarkInTx(b, 1) }

func BenchmarkExec(b *testing.B) {
	eachCommit(b, clients, func(b *testing.B, r *rig) {
		compare(b, r,
			variant{"unguarded", func(ctx context.Context, id string) error { _, err := r.pool.Exec(ctx, sell, id); return err }},
			variant{"guarded", func(ctx context.Context, id string) error { _, err := r.guard.Exec(ctx, sell, id); return err }})
	})
}

// BenchmarkAllocations is one client, for the allocations of each call.
func BenchmarkAllocations(b *testing.B) {
	r := newRig(b, clients, "off")
	ctx, id := r.contexts[0], r.ids[0]
	update := func(tx pgx.Tx) error { _, err := tx.Exec(ctx, sell, id); return err }
	for name, do := range map[string]func() error{
		"InTx":      func() error { return r.guard.InTx(ctx, update) },
		"deferred":  func() error { return r.deferred.InTx(ctx, update) },
		"BeginFunc": func() error { return pgx.BeginFunc(ctx, r.pool, update) },
		"Exec":      func() error { _, err := r.guard.Exec(ctx, sell, id); return err },
		"pool.Exec": func() error { _, err := r.pool.Exec(ctx, sell, id); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRaiseBehindStaleTransactions raises behind 8 overlapping transactions
// of 12 ms of the earlier holder. The target is the longest of one of them and
// 50 ms, and no multixact.
func BenchmarkRaiseBehindStaleTransactions(b *testing.B) {
	r := newRig(b, 1, "on")
	multixacts := func() (n int64) {
		require.NoError(b, r.pool.QueryRow(b.Context(), "select next_multixact_id::text::bigint from pg_control_checkpoint()").Scan(&n))
		return n
	}
	checkpoint := func() {
		_, err := r.pool.Exec(b.Context(), "checkpoint")
		require.NoError(b, err)
	}
	checkpoint()
	before := multixacts()
	var waits, longest []time.Duration
	token := guard.Token(1)
	for b.Loop() {
		ctx := guard.NewContext(b.Context(), guard.Fence{Resource: r.ids[0], Token: token, Nonce: "n"})
		var stop atomic.Bool
		var worst atomic.Int64
		var running atomic.Int32
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				<-time.After(time.Duration(i) * 12 * time.Millisecond / clients) // they overlap
				for !stop.Load() {
					start := time.Now()
					err := r.guard.InTx(ctx, func(tx pgx.Tx) error {
						running.Add(1)
						start = time.Now()
						_, err := tx.Exec(ctx, "select pg_sleep(0.012)")
						return err
					})
					if err != nil {
						return
					}
					worst.Store(max(worst.Load(), int64(time.Since(start))))
				}
			})
		}
		for running.Load() < 3*clients {
			<-time.After(time.Millisecond)
		}
		token++
		start := time.Now()
		if err := r.guard.Raise(b.Context(), guard.Fence{Resource: r.ids[0], Token: token, Nonce: "n"}); err != nil {
			b.Fatal(err)
		}
		waits = append(waits, time.Since(start))
		stop.Store(true)
		wg.Wait()
		longest = append(longest, time.Duration(worst.Load()))
	}
	slices.Sort(waits)
	slices.Sort(longest)
	checkpoint()
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(waits[len(waits)-1].Microseconds())/1000, "max-ms")
	b.ReportMetric(float64(longest[len(longest)-1].Microseconds())/1000, "longest-tx-ms")
	b.ReportMetric(float64(multixacts()-before), "multixacts")
	b.ReportMetric(0, "ns/op")
}
