package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sequencer"
	"github.com/go-fencing/fencing/sqlguard"
)

func TestIssueMintsTheNextToken(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		first, err := db.guard.Issue(t.Context(), "r", "n1", "A")
		require.NoError(t, err)
		require.Equal(t, guard.Fence{Resource: "r", Token: 1, Nonce: "n1", Holder: "A"}, first)
		again, err := db.guard.Issue(t.Context(), "r", "n1", "A")
		require.NoError(t, err)
		require.Equal(t, first, again)
		second, err := db.guard.Issue(t.Context(), "r", "n2", "B")
		require.NoError(t, err)
		require.EqualValues(t, 2, second.Token)
		require.ErrorIs(t, db.guard.Raise(t.Context(), first), guard.ErrStale)

		_, err = db.guard.Issue(t.Context(), "", "n", "A")
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.NoError(t, db.guard.Raise(t.Context(), guard.Fence{Resource: "r", Token: math.MaxInt64, Nonce: "n3"}))
		_, err = db.guard.Issue(t.Context(), "r", "n4", "A")
		require.ErrorIs(t, err, sequencer.ErrExhausted)
		require.ErrorContains(t, err, "fencectl rebase")
		require.Equal(t, 1, strings.Count(err.Error(), "issue"), "%v", err)
	})
}

// S5: who is in the way, and that the raise leaves nothing behind which would keep
// others from entering.
func TestS5_BlockedRaiseNamesWhoIsInTheWay(t *testing.T) {
	for _, end := range []string{"lock timeout", "context"} {
		t.Run(end, func(t *testing.T) {
			eachTarget(t, func(t *testing.T, db *database) {
				ctx, _ := db.raised("r", 33, "A")
				tx, err := db.guard.BeginTx(ctx, nil)
				require.NoError(t, err)
				var connection int64
				switch db.dialect {
				case sqlguard.Postgres:
					require.NoError(t, tx.QueryRow("select pg_backend_pid()").Scan(&connection))
				case sqlguard.MySQL:
					require.NoError(t, tx.QueryRow("select connection_id()").Scan(&connection))
					_, err := tx.Exec("insert into item (id, stock) values ('w', 1)") // until then it has no number of its own
					require.NoError(t, err)
				}
				g, raising, cause := db.guard, t.Context(), "the lease is gone"
				if end == "context" {
					var cancel context.CancelFunc
					raising, cancel = context.WithTimeoutCause(t.Context(), time.Second, errors.New(cause)) // it includes connecting
					defer cancel()
				} else {
					g, cause = db.newGuard(sqlguard.WithLockTimeout(200*time.Millisecond)), ""
				}
				start := time.Now()
				err = g.Raise(raising, fence("r", 34, "B"))
				require.ErrorIs(t, err, guard.ErrBlocked)
				require.ErrorContains(t, err, cause)
				require.Less(t, time.Since(start), 5*time.Second)
				require.Greater(t, time.Since(start), 150*time.Millisecond)
				var blocked *sqlguard.BlockedError
				require.ErrorAs(t, err, &blocked)
				require.Equal(t, connection, blocked.Connection, "%v", err)
				require.Equal(t, "r", blocked.Resource)
				if connection != 0 {
					require.WithinDuration(t, time.Now(), blocked.Since, time.Minute)
					require.NotEmpty(t, blocked.State)
				}
				// Nobody waits behind the raise that was given up. The server would go on
				// with it for the lock timeout, which is long where the context has ended.
				if db.dialect != sqlguard.SQLite {
					start = time.Now()
					require.NoError(t, db.guard.InTx(ctx, func(*sql.Tx) error { return nil }))
					require.Less(t, time.Since(start), 5*time.Second)
				}
				require.NoError(t, tx.Commit())
				require.NoError(t, db.guard.InTx(ctx, func(*sql.Tx) error { return nil }), "the raise left no trace")
				require.NoError(t, db.guard.Raise(t.Context(), fence("r", 34, "B")))
			})
		})
	}
}

// Transactions that have written nothing are alike to MariaDB: none is named then,
// rather than a wrong one.
func TestS5_BlockedRaiseNamesNobodyRatherThanTheWrongOne(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, mariadb)
	for _, resource := range []string{"other", "r"} {
		ctx, _ := db.raised(resource, 33, "A")
		tx, err := db.guard.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
	}
	err := db.newGuard(sqlguard.WithLockTimeout(100*time.Millisecond)).Raise(t.Context(), fence("r", 34, "B"))
	var blocked *sqlguard.BlockedError
	require.ErrorAs(t, err, &blocked)
	require.Zero(t, blocked.Connection)
	require.ErrorContains(t, err, "by another transaction; nothing was changed")
}

func TestFirstRaisesOfManyResourcesAtOnce(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		var group sync.WaitGroup
		errs := make(chan error, 64)
		for i := range 64 {
			group.Go(func() {
				// Eight holders want each of eight resources.
				f := fence(fmt.Sprintf("new:%d", i%8), guard.Token(1+i/8), "A")
				if err := db.guard.Raise(t.Context(), f); err != nil && !errors.Is(err, guard.ErrStale) {
					errs <- err
				}
			})
		}
		group.Wait()
		close(errs)
		require.NoError(t, <-errs)
		for i := range 8 {
			top := guard.Fence{Resource: fmt.Sprintf("new:%d", i), Token: 8, Nonce: "another"}
			require.ErrorIs(t, db.guard.Raise(t.Context(), top), guard.ErrConflict)
		}
	})
}

// A transaction that was refused because there is no row, and has not been rolled
// back yet, must not keep others from raising.
func TestRefusedTransactionDoesNotBlockTheFirstRaiseOfAnother(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, mariadb, sqlguard.WithLockTimeout(time.Second))
	tx, err := db.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(t, err)
	require.ErrorIs(t, sqlguard.Enter(t.Context(), db.dialect, tx, fence("m", 1, "A")), guard.ErrNotRaised)
	db.raised("n", 1, "B")
	require.NoError(t, tx.Rollback())
}

func TestRaiseRestoresTheSettingsOfItsConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		target       target
		set, show    string
		before, want int
	}{
		{mariadb, "set session innodb_lock_wait_timeout = 77", "select @@innodb_lock_wait_timeout", 77, 77},
		{sqliteWAL, "pragma busy_timeout = 77", "pragma busy_timeout", 77, 77},
	} {
		db := newDatabase(t, c.target)
		db.db.SetMaxOpenConns(1)
		db.must(c.set)
		db.raised("r", 1, "A")
		require.Equal(t, c.want, one[int](db, c.show))
	}
}

// How long a raise waits behind a stream of overlapping transactions of the
// earlier fence.
func TestRaiseIsNotStarved(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		db.must("insert into item (id, stock) values ('a', 0)")
		ctx, _ := db.raised("r", 33, "A")
		var group sync.WaitGroup
		began := make(chan struct{}, 100000)
		for range 6 {
			group.Go(func() {
				for {
					err := db.guard.InTx(ctx, func(tx *sql.Tx) error {
						began <- struct{}{}
						<-time.After(12 * time.Millisecond) // the length of the transactions is what is looked at
						return nil
					})
					if err != nil && !sqlguard.Retryable(err) {
						return
					}
				}
			})
		}
		for range 6 {
			<-began
		}
		start := time.Now()
		require.NoError(t, db.guard.Raise(t.Context(), fence("r", 34, "B")))
		took := time.Since(start)
		group.Wait()
		t.Logf("%s: the raise took %v", db.name, took)
		require.Less(t, took, 3*time.Second)
	})
}
