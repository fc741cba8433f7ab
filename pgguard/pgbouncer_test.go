package pgguard_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/pgguard"
)

func TestS43_PgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	shared := newDatabase(t)
	shared.url = servertest.PgBouncer(t, shared.url)
	for name, c := range map[string]struct {
		mode     pgx.QueryExecMode
		deferred bool
	}{
		"exec":            {pgx.QueryExecModeExec, false},
		"exec, deferred":  {pgx.QueryExecModeExec, true},
		"simple protocol": {pgx.QueryExecModeSimpleProtocol, false},
	} {
		t.Run(name, func(t *testing.T) {
			db := shared.in(t, c.mode, c.deferred)
			resource := unique("r")
			ctx, a := db.raised(resource, 33, "A")
			for name, write := range writes {
				id := unique(name)
				require.NoError(t, write(ctx, db.guard, id), name)
				require.Equal(t, 100, db.stock(id), name)
			}

			// Nothing of a transaction is left for the next client of its server
			// connection.
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					for range 20 {
						err := db.guard.InTx(ctx, func(tx pgx.Tx) error {
							_, err := tx.Exec(ctx, "insert into guarded values ($1, $2)", unique("g"), resource)
							return err
						})
						if err != nil {
							t.Error(err)
						}
						var held, idle string
						err = db.pool.QueryRow(ctx, "select coalesce(current_setting('fencing.held', true), ''), current_setting('idle_in_transaction_session_timeout')").Scan(&held, &idle)
						if err != nil || held != "" || idle != "0" {
							t.Errorf("held %q, idle %q, error %v", held, idle, err)
						}
						if _, err = db.pool.Exec(ctx, "insert into guarded values ($1, $2)", unique("g"), resource); err == nil {
							t.Error("an unguarded write went through")
						}
					}
				})
			}
			wg.Wait()

			raise := func() (guard.Fence, func() error) {
				b := fence(resource, 34, "B")
				return b, background(t, func() error { return db.guard.Raise(t.Context(), b) })
			}
			var b guard.Fence
			var raised func() error
			require.NoError(t, db.guard.InTx(ctx, func(tx pgx.Tx) error {
				require.NoError(t, inserts(ctx, unique("i"))(tx))
				b, raised = raise()
				db.awaitBlocked(resource)
				return inserts(ctx, unique("i"))(tx)
			}))
			require.NoError(t, raised())
			for name, write := range writes {
				requireStale(t, write(ctx, db.guard, unique(name)), a, b)
			}
			require.NoError(t, pgguard.UpdateRow(guard.NewContext(t.Context(), b), db.pool, func() pgguard.RowUpdate {
				id := unique("i")
				db.must("insert into item values ($1, 100)", id)
				return sale(resource, id)
			}()))
		})
	}
}
