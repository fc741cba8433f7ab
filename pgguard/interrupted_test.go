package pgguard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

// The context of a lease says why the lease was lost, and so does whatever it
// interrupts.
func TestInterruptedStatementSaysWhy(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		polite := func(c *pgxpool.Config) { // it asks the server to end the statement
			c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
				return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: 10 * time.Second}
			}
		}
		db.must(`create table slow (id int);
			create function slowly() returns trigger language plpgsql as 'begin perform pg_sleep(20); return null; end';
			create constraint trigger slow after insert on slow deferrable initially deferred for each row execute function slowly()`)
		const sleep = "select pg_sleep(20)"
		guards := map[string]*pgguard.Guard{"": db.guard, ", which is cancelled": db.newGuard(newPool(t, db.url, polite))}
		for name, call := range map[string]func(ctx context.Context, g *pgguard.Guard) error{
			"InTx": func(ctx context.Context, g *pgguard.Guard) error {
				return g.InTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, sleep); return err })
			},
			"Once": func(ctx context.Context, g *pgguard.Guard) error {
				return g.Once(ctx, "o", func(tx pgx.Tx) error { _, err := tx.Exec(ctx, sleep); return err })
			},
			"function": func(ctx context.Context, g *pgguard.Guard) error {
				return g.InTx(ctx, func(tx pgx.Tx) error { _, _ = tx.Exec(ctx, sleep); return ctx.Err() })
			},
			"Exec":  func(ctx context.Context, g *pgguard.Guard) error { _, err := g.Exec(ctx, sleep); return err },
			"Query": func(ctx context.Context, g *pgguard.Guard) error { return g.QueryRow(ctx, sleep).Scan(nil) },
			"commit": func(ctx context.Context, g *pgguard.Guard) error {
				return g.InTx(ctx, func(tx pgx.Tx) error { // the check at the end sleeps
					_, err := tx.Exec(ctx, "insert into slow values (1)")
					return err
				})
			},
		} {
			for how, g := range guards {
				t.Run(name+how, func(t *testing.T) {
					lost := errors.New("lock: lost")
					held, _ := db.raised(unique("r"), 1, "A")
					ctx, lose := context.WithCancelCause(held)
					defer lose(nil)
					go func() {
						db.await("select count(*) > 0 from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'")
						lose(lost)
					}()
					err := call(ctx, g)
					require.ErrorIs(t, err, lost)
					if (name == "Exec" || name == "Query") && how == "" {
						require.ErrorIs(t, err, guard.ErrCommitUnknown)
					}
					db.must("select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()")
				})
			}
		}
	})
}

func TestErrorOfAFunctionIsItsOwnAfterTheContext(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	held, _ := db.raised("r", 1, "A")
	ctx, cancel := context.WithCancel(held)
	soldOut := errors.New("sold out")
	require.Equal(t, soldOut, db.guard.InTx(ctx, func(pgx.Tx) error { cancel(); return soldOut }))
}
