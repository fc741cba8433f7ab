package sqlguard_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sqlguard"
)

// What sqlc generates for database/sql, with emit_prepared_queries, word for word
// but for the names.

type DBTX interface {
	ExecContext(context.Context, string, ...interface{}) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...interface{}) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...interface{}) *sql.Row
}

func newQueries(db DBTX) *queries { return &queries{db: db} }

type queries struct{ db DBTX }

func (q *queries) WithTx(tx *sql.Tx) *queries { return &queries{db: tx} }

type itemRow struct {
	ID    string
	Stock int32
}

func (q *queries) GetItem(ctx context.Context, id string) (itemRow, error) {
	row := q.db.QueryRowContext(ctx, "SELECT id, stock FROM item WHERE id = $1", id)
	var i itemRow
	err := row.Scan(&i.ID, &i.Stock)
	return i, err
}

func (q *queries) CreateItem(ctx context.Context, id string, stock int32) (itemRow, error) {
	row := q.db.QueryRowContext(ctx, "INSERT INTO item (id, stock) VALUES ($1, $2) RETURNING id, stock", id, stock)
	var i itemRow
	err := row.Scan(&i.ID, &i.Stock)
	return i, err
}

func (q *queries) UpdateStock(ctx context.Context, stock int32, id string) error {
	_, err := q.db.ExecContext(ctx, "UPDATE item SET stock = $1 WHERE id = $2", stock, id)
	return err
}

func (q *queries) ListItems(ctx context.Context) ([]itemRow, error) {
	rows, err := q.db.QueryContext(ctx, "SELECT id, stock FROM item ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var items []itemRow
	for rows.Next() {
		var i itemRow
		if err := rows.Scan(&i.ID, &i.Stock); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return items, nil
}

func TestCodeOfSqlcIsFencedUnchanged(t *testing.T) {
	t.Parallel()
	for _, target := range []target{postgres, sqliteWAL} { // $1 is a placeholder for both
		t.Run(target.name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, target)
			wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect))
			q := newQueries(wrapped)
			stale, old := db.raised("r", 33, "A")
			created, err := q.CreateItem(stale, "a", 5)
			require.NoError(t, err)
			require.Equal(t, itemRow{"a", 5}, created)
			require.NoError(t, q.UpdateStock(stale, 6, "a"))

			fresh, current := db.raised("r", 34, "B")
			requireStale(t, q.UpdateStock(stale, 7, "a"), old, current)
			_, err = q.CreateItem(stale, "b", 5)
			requireStale(t, err, old, current)
			_, err = q.GetItem(stale, "a")
			requireStale(t, err, old, current)
			_, err = q.CreateItem(t.Context(), "b", 5)
			require.ErrorIs(t, err, guard.ErrNoFence)
			require.ErrorIs(t, q.UpdateStock(t.Context(), 7, "a"), guard.ErrNoFence)

			tx, err := wrapped.BeginTx(fresh, nil)
			require.NoError(t, err)
			require.NoError(t, q.WithTx(tx).UpdateStock(fresh, 8, "a"))
			require.NoError(t, tx.Commit())
			items, err := q.ListItems(t.Context())
			require.NoError(t, err)
			require.Equal(t, []itemRow{{"a", 8}}, items)
		})
	}
}
