package gormguard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

// Whoever wrote no guarded table learns why the text counts as a write to one.
func TestErrorsOfTextsThatCannotBeReadSaySo(t *testing.T) {
	t.Parallel()
	const why = "cannot be read for certain"
	for _, tt := range []struct {
		engine     engine
		sql, table string
		certain    bool
	}{
		{engine: onMariaDB, sql: `INSERT INTO audits(msg) VALUES('a\'b update items')`, table: `"items"`},
		{engine: onPostgres, sql: `UPDATE U&"items" SET note = 'x'`, table: `"items"`},
		{engine: onPostgres, sql: `UPDATE U&"\0069tems" SET note = 'x'`, table: `"u&\"\\0069tems\""`},
		{engine: onPostgres, sql: `UPDATE items SET note = 'x'`, table: `"items"`, certain: true},
	} {
		for _, mode := range []gormguard.Mode{gormguard.ModeFence, gormguard.ModeRow} {
			d := newDatabase(t, tt.engine, nil, gormguard.WithMode(mode))
			err := d.db.Exec(tt.sql).Error
			require.ErrorIs(t, err, guard.ErrNoFence)
			require.ErrorContains(t, err, "write to "+tt.table)
			if mode == gormguard.ModeRow {
				err = d.db.WithContext(d.raised("sku", 1)).Exec(tt.sql).Error
				require.ErrorIs(t, err, gormguard.ErrRaw)
			}
			if tt.certain {
				require.NotContains(t, err.Error(), why)
			} else {
				require.ErrorContains(t, err, why)
			}
		}
	}
}
