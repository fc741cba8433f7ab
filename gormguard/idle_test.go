package gormguard_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/go-fencing/fencing/guard"
)

func TestTransactionThatSatIdleIsToldSo(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onPostgres, nil)
	held := d.raised("sku", 1)
	for name, run := range map[string]func(tx *gorm.DB) error{
		"commit": func(*gorm.DB) error { return nil },
		"exec":   func(tx *gorm.DB) error { return tx.Exec("SELECT 1").Error },
		"save":   func(tx *gorm.DB) error { return tx.Save(&Item{ID: 1, SKU: "sku"}).Error },
		"find":   func(tx *gorm.DB) error { return tx.Find(&[]Item{}).Error },
		"row":    func(tx *gorm.DB) error { return tx.Raw("SELECT 1").Row().Scan(new(int)) },
	} {
		err := d.db.WithContext(held).Transaction(func(tx *gorm.DB) error {
			var pid int
			require.NoError(t, tx.Save(&Item{ID: 1, SKU: "sku"}).Error)
			require.NoError(t, tx.Raw("SELECT pg_backend_pid()").Scan(&pid).Error)
			require.NoError(t, tx.Exec("SET LOCAL idle_in_transaction_session_timeout = '20ms'").Error)
			for gone := false; !gone; {
				require.NoError(t, d.bare.Raw("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ?", pid).Scan(&gone).Error)
			}
			return run(tx)
		})
		require.ErrorContains(t, err, "gormguard: nothing was written: the transaction sat idle for longer than it may", name)
		require.ErrorContains(t, err, "25P03", name)
		require.NotErrorIs(t, err, guard.ErrCommitUnknown, name)
	}
}
