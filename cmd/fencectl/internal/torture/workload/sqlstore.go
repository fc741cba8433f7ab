package workload

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
	"github.com/go-fencing/fencing/sqlguard"
)

// openSQL makes the stores on database/sql.
func (p *program) openSQL(config *pgx.ConnConfig) (closing func(), err error) {
	opts := []sqlguard.Option{sqlguard.WithSchema(p.FenceSchema), sqlguard.WithLockTimeout(p.LockTimeout), sqlguard.WithIdleTimeout(p.IdleTimeout)}
	// GORM and the plugin ask the database at once, which may be down when a worker
	// takes the place of a killed one. Where they fail, GORM closes the pool.
	for late := time.Now().Add(callBound); ; time.Sleep(50 * time.Millisecond) {
		db := sql.OpenDB(stdlib.GetConnector(*config))
		db.SetMaxOpenConns(4)
		closing = func() { _ = db.Close() } // at the end there is nothing to lose
		if p.Variant == SQLGuard {
			p.store, err = newSQLStore(db, sql.OpenDB(sqlguard.Wrap(stdlib.GetConnector(*config), sqlguard.Postgres, opts...)), opts)
		} else {
			p.store, err = newGormStore(db, opts)
		}
		if err == nil || time.Now().After(late) {
			return closing, err
		}
		closing()
	}
}

func newSQLStore(db, wrapped *sql.DB, opts []sqlguard.Option) (store, error) {
	g, err := sqlguard.New(db, sqlguard.Postgres, opts...)
	wrapped.SetMaxOpenConns(4)
	return sqlStore{g, wrapped}, err
}

func newGormStore(db *sql.DB, opts []sqlguard.Option) (store, error) {
	orm, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, err
	}
	g := gormguard.New(gormguard.WithModels(&balance{}, &record{}), gormguard.WithTables("account", "item", "effect"), gormguard.WithGuardOptions(opts...))
	return gormStore{orm, g}, orm.Use(g)
}

type sqlStore struct {
	*sqlguard.Guard
	wrapped *sql.DB // which closes with the process
}

func (s sqlStore) guard() guard.Guard { return s.Guard }
func (s sqlStore) definite(Way) bool  { return true }

func (s sqlStore) inTx(ctx context.Context, way Way, _ string, _ guard.Fence, fn func(tx writer) error) error {
	do := func(tx *sql.Tx) error { return fn(sqlTx{tx}) }
	switch way {
	case ByHand:
		tx, err := s.wrapped.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := do(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	case Repeatable:
		return s.InTxOptions(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}, do)
	case Serializable:
		return s.InTxOptions(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable}, do)
	}
	return s.InTx(ctx, do)
}

func (s sqlStore) single(ctx context.Context, row history.Row) error {
	_, err := s.wrapped.ExecContext(ctx, history.Single, row.Args()...)
	return err
}

type sqlTx struct{ *sql.Tx }

func (tx sqlTx) append(ctx context.Context, row history.Row) error {
	if err := tx.exec(ctx, history.SetBalance, row.Resource, row.Balance()); err != nil {
		return err
	}
	return tx.exec(ctx, history.InsertRow, row.Args()...)
}

func (tx sqlTx) exec(ctx context.Context, sql string, args ...any) error {
	_, err := tx.ExecContext(ctx, sql, args...)
	return err
}

func (tx sqlTx) undone(ctx context.Context, fn func(tx writer) error) error {
	if err := tx.exec(ctx, "SAVEPOINT undone"); err != nil {
		return err
	}
	return errors.Join(fn(tx), tx.exec(ctx, "ROLLBACK TO SAVEPOINT undone"))
}

type gormStore struct {
	db *gorm.DB
	*gormguard.Plugin
}

func (s gormStore) guard() guard.Guard { return s.Plugin }

// definite is false: GORM hands on what the driver says of a commit.
func (s gormStore) definite(Way) bool { return false }

func (s gormStore) inTx(ctx context.Context, way Way, _ string, _ guard.Fence, fn func(tx writer) error) error {
	db := s.db.WithContext(ctx)
	if way == ByHand {
		tx := db.Begin()
		if tx.Error != nil {
			return tx.Error
		}
		if err := fn(gormTx{tx}); err != nil {
			return errors.Join(err, tx.Rollback().Error)
		}
		return tx.Commit().Error
	}
	var opts []*sql.TxOptions
	switch way {
	case Repeatable:
		opts = append(opts, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	case Serializable:
		opts = append(opts, &sql.TxOptions{Isolation: sql.LevelSerializable})
	}
	return db.Transaction(func(tx *gorm.DB) error {
		if way != Savepoint { // there it is entered inside, and lost with the savepoint
			if err := gormguard.Enter(tx); err != nil {
				return err
			}
		}
		return fn(gormTx{tx})
	}, opts...)
}

func (s gormStore) single(ctx context.Context, row history.Row) error {
	return s.db.WithContext(ctx).Exec(history.Single, row.Args()...).Error
}

type gormTx struct{ *gorm.DB }

// balance and record are the tables of package history as models.
type (
	balance struct {
		Resource string `gorm:"primaryKey"`
		Value    int64
	}
	record struct {
		Resource       string
		Op, Previous   string
		Position       int64
		Before, Amount int64
		Token          int64
		Nonce, Holder  string
	}
)

func (balance) TableName() string { return "balance" }
func (record) TableName() string  { return "history" }

// FenceResource names the fence that a row needs.
func (b balance) FenceResource() string { return b.Resource }

// FenceResource names the fence that a row needs.
func (r record) FenceResource() string { return r.Resource }

func (tx gormTx) append(_ context.Context, row history.Row) error {
	if err := tx.Model(&balance{Resource: row.Resource}).Update("value", row.Balance()).Error; err != nil {
		return err
	}
	return tx.Create(&record{row.Resource, row.Op, row.Previous, row.Position, row.Before, row.Amount, int64(row.Token), row.Nonce, row.Holder}).Error
}

func (tx gormTx) exec(_ context.Context, sql string, args ...any) error {
	return tx.Exec(sql, args...).Error
}

// undone is GORM's nested transaction, which is a savepoint.
func (tx gormTx) undone(_ context.Context, fn func(tx writer) error) (err error) {
	undo := errors.New("undo")
	rolledBack := tx.Transaction(func(tx *gorm.DB) error {
		err = fn(gormTx{tx})
		return undo
	})
	if !errors.Is(rolledBack, undo) {
		err = errors.Join(err, rolledBack)
	}
	return err
}
