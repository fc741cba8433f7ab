package sqlguard_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sqlguard"
)

func TestWrappedPragmaThatMayChangeSomethingNeedsAFence(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, sqliteWAL)
	db.must("insert into item values ('stock', 100)")
	w := db.openDB(sqlguard.Wrap(db.connector, db.dialect))
	readOnly, err := w.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, readOnly.Rollback()) }()
	run := func(text string) error {
		for _, query := range []func(string, ...any) (*sql.Rows, error){w.Query, readOnly.Query} {
			rows, err := query(text)
			if err != nil {
				return err
			}
			for rows.Next() {
			}
			require.NoError(t, rows.Err())
			require.NoError(t, rows.Close())
		}
		return nil
	}
	for _, text := range []string{"pragma table_info(item)", "PRAGMA main.table_info = item", "pragma foreign_keys; pragma user_version;", "select 'pragma query_only = 0'"} {
		require.NoError(t, run(text), text)
	}
	for _, text := range []string{
		"pragma query_only = 0; update item set stock = 1 returning stock", "pragma query_only(0)", `pragma "query_only" = 0`, `pragma main."query_only" = 0`,
		"pragma user_version = 5", "pragma main.user_version = 5", "pragma wal_checkpoint", "pragma optimize", "pragma writable_schema = 1",
	} {
		require.ErrorIs(t, run(text), guard.ErrNoFence, text)
	}
	require.Equal(t, 100, db.stock("stock"))
	ctx, _ := db.raised("r", 1, "A")
	_, err = w.ExecContext(ctx, "pragma user_version = 5")
	require.NoError(t, err)
}
