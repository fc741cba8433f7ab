package gormguard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard/guardtest"
	"github.com/go-fencing/fencing/sqlguard"
)

// Datum is the table of keys and values that guardtest wants.
type Datum struct {
	K string `gorm:"primaryKey;size:100"`
	V string `gorm:"size:65536"`
}

type store struct {
	*gormguard.Plugin
	db *gorm.DB
}

func (s store) Update(ctx context.Context, fn func(context.Context, guardtest.Tx) error) error {
	for {
		err := s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := gormguard.Enter(tx); err != nil {
				return err
			}
			return fn(ctx, table{tx})
		})
		if !sqlguard.Retryable(err) {
			return err
		}
	}
}

type table struct{ tx *gorm.DB }

func (t table) Get(ctx context.Context, key string) (string, bool, error) {
	var d Datum
	err := t.tx.WithContext(ctx).Where("k = ?", key).Take(&d).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return "", false, nil
	}
	return d.V, err == nil, err
}

func (t table) Put(ctx context.Context, key, value string) error {
	return t.tx.WithContext(ctx).Clauses(clause.OnConflict{UpdateAll: true}).Create(&Datum{key, value}).Error
}

func (t table) Delete(ctx context.Context, key string) error {
	return t.tx.WithContext(ctx).Where("k = ?", key).Delete(&Datum{}).Error
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newBare(t, e)
			if e.name == "mysql" {
				require.NoError(t, d.bare.Exec("CREATE TABLE data (k varchar(100) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, v mediumtext NOT NULL)").Error)
			} else {
				require.NoError(t, d.bare.AutoMigrate(&Datum{}))
			}
			db, err := gorm.Open(dialector(e, d.sql), quiet())
			require.NoError(t, err)
			opts := []gormguard.Option{gormguard.WithTables("data")}
			if e.name == "postgres" { // a transaction of the suite may sit idle for longer on a busy machine
				opts = append(opts, gormguard.WithGuardOptions(sqlguard.WithLockTimeout(time.Minute), sqlguard.WithIdleTimeout(50*time.Second)))
			}
			p := gormguard.New(opts...)
			require.NoError(t, db.Use(p))
			guardtest.Run(t, func(*testing.T) guardtest.Store { return store{p, db} })
		})
	}
}

func (Datum) TableName() string { return "data" }
