package gormguard_test

import (
	"database/sql"
	"errors"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	sqlite "github.com/libtnb/sqlite"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/sqlguard"
)

// MariaDB with several statements in one text.
var onMariaTexts = engine{"mysql", func(t testing.TB) gorm.Dialector {
	config, err := driver.ParseDSN(servertest.MariaDB(t))
	require.NoError(t, err)
	config.ParseTime = true
	config.MultiStatements = true
	return mysql.Open(config.FormatDSN())
}}

// cannotGoOn raises a later fence, which nothing may hold up, and checks that tx,
// which has entered the former one, writes nothing and commits nothing. It returns
// the error of the commit.
func cannotGoOn(t *testing.T, c *cell, tx *gorm.DB) error {
	t.Helper()
	c.raised(c.sku, newerToken)
	before := c.rows()
	require.Error(t, tx.Model(c.item(1)).Update("note", "late").Error)
	err := tx.Commit().Error
	require.Equal(t, before, c.rows())
	return err
}

func (c *cell) note() (note string) {
	c.Helper()
	require.NoError(c, c.bare.Raw("SELECT note FROM items WHERE id = ?", c.item(1).ID).Scan(&note).Error)
	return note
}

// The victim of a deadlock has no transaction any more: what it writes is committed
// statement by statement.
func TestAfterADeadlockNothingIsWritten(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		config := quiet()
		config.PrepareStmt = prepare
		d := newDatabase(t, onMariaDB, config)
		require.NoError(t, d.bare.Exec("INSERT INTO tags (id, name) SELECT seq, 'x' FROM seq_10_to_500").Error)
		for i, fails := range []func(tx *gorm.DB) error{
			func(tx *gorm.DB) error { return tx.Exec("UPDATE tags SET name = 'y' WHERE id = 1").Error },
			func(tx *gorm.DB) error { return tx.Model(&Tag{ID: 1}).Update("name", "y").Error },
			func(tx *gorm.DB) error {
				return tx.Clauses(clause.Locking{Strength: "UPDATE"}).Find(&[]Tag{}).Error
			},
			func(tx *gorm.DB) error {
				var names []string
				return tx.Raw("SELECT name FROM tags FOR UPDATE").Scan(&names).Error
			},
			func(tx *gorm.DB) error {
				var name string
				return tx.Raw("SELECT name FROM tags WHERE id = 1 FOR UPDATE").Row().Scan(&name)
			},
		} {
			c := d.cell(i, fresh)
			tx := c.tx.Begin()
			require.NoError(t, tx.Model(c.item(1)).Update("note", "first").Error)
			other := c.bare.Session(&gorm.Session{PrepareStmt: false}).Begin()
			require.NoError(t, other.Exec("UPDATE tags SET name = 'heavy'").Error) // so that tx is the victim, whoever waits first
			done := make(chan error, 1)
			go func() { done <- other.Exec("UPDATE items SET stock = 9 WHERE id = 1").Error }()
			require.ErrorContains(t, fails(tx), "1213", "%d", i)
			require.NoError(t, <-done)
			require.NoError(t, other.Rollback().Error)
			require.Error(t, cannotGoOn(t, c, tx), "%d", i)
		}
	}
}

func TestAfterSQLiteHasRolledBackNothingIsWritten(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onSQLite, nil)
	for i, fails := range []func(tx *gorm.DB) error{
		func(tx *gorm.DB) error {
			return tx.Exec("INSERT OR ROLLBACK INTO tags (id, name) VALUES (1, 'twice')").Error
		},
		func(tx *gorm.DB) error {
			var id int
			return tx.Raw("INSERT OR ROLLBACK INTO tags (id, name) VALUES (1, 'twice') RETURNING id").Scan(&id).Error
		},
		func(tx *gorm.DB) error {
			return tx.Clauses(clause.Insert{Modifier: "OR ROLLBACK"}).Create(&Tag{ID: 1}).Error
		},
	} {
		c := d.cell(i, fresh)
		tx := c.tx.Begin()
		require.NoError(t, tx.Model(c.item(1)).Update("note", "first").Error)
		require.Error(t, fails(tx), "%d", i)
		require.ErrorContains(t, cannotGoOn(t, c, tx), "rolled back this transaction by itself")
	}
	c := d.cell(9, fresh)
	require.ErrorContains(t, c.tx.Transaction(func(tx *gorm.DB) error {
		_ = tx.Exec("INSERT OR ROLLBACK INTO tags (id, name) VALUES (1, 'twice')").Error
		return nil
	}), "rolled back this transaction by itself")
	require.ErrorContains(t, c.tx.Transaction(func(tx *gorm.DB) error {
		require.NoError(t, tx.Model(c.item(1)).Update("note", "first").Error)
		var id int
		_ = tx.Raw("INSERT OR ROLLBACK INTO tags (id, name) VALUES (1, 'twice') RETURNING id").Scan(&id).Error
		return nil
	}), "rolled back this transaction by itself")
}

// Every refusal counts, and not only that of the fence.
func TestEveryRefusalDoomsItsTransaction(t *testing.T) {
	t.Parallel()
	for mode, m := range modes {
		for _, kind := range []held{none, foreign, stale} {
			t.Run(mode+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, onSQLite, nil, gormguard.WithMode(m))
				c := d.cell(1, kind)
				for i, write := range []func(tx *gorm.DB) error{
					func(tx *gorm.DB) error { return tx.Model(c.item(1)).Update("note", "x").Error },
					func(tx *gorm.DB) error { return tx.Save(c.item(1)).Error },
					func(tx *gorm.DB) error { return tx.Delete(c.item(1)).Error },
				} {
					var refused error
					err := c.tx.Transaction(func(tx *gorm.DB) error {
						require.NoError(t, tx.Exec("UPDATE tags SET name = 'half' WHERE id = 1").Error)
						refused = write(tx)
						return nil
					})
					require.Error(t, refused, "%d", i)
					if m == gormguard.ModeRow { // there each statement is judged by itself
						require.NoError(t, err, "%d", i)
						continue
					}
					require.ErrorContains(t, err, refused.Error(), "%d", i)
				}
			})
		}
	}
}

// Of savepoints with one name the last is meant, and those after it are gone with it.
func TestDoomIsNotLostWithSavepointNamesUsedTwice(t *testing.T) {
	t.Parallel()
	for _, e := range []engine{onSQLite, onMariaDB} {
		d := newDatabase(t, e, nil)
		c := d.cell(1, stale)
		refused := func(tx *gorm.DB) {
			require.ErrorIs(t, tx.Model(c.item(1)).Update("note", "x").Error, guard.ErrStale)
		}
		for name, run := range map[string]func(tx *gorm.DB){
			"set again": func(tx *gorm.DB) {
				tx.SavePoint("a")
				refused(tx)
				tx.SavePoint("a").RollbackTo("a")
			},
			"gone and set again": func(tx *gorm.DB) {
				tx.SavePoint("a").SavePoint("b").RollbackTo("a")
				refused(tx)
				tx.SavePoint("b").RollbackTo("b")
			},
			"refused again": func(tx *gorm.DB) {
				refused(tx)
				tx.SavePoint("a")
				refused(tx)
				tx.RollbackTo("a")
			},
		} {
			tx := c.tx.Begin()
			run(tx)
			require.ErrorIs(t, tx.Commit().Error, guard.ErrStale, "%s: %s", e.name, name)
		}
	}
}

// A lock that is acquired in the middle of a transaction of MySQL: what its holder before
// has written is not in the snapshot.
func TestS25_ASnapshotFromBeforeTheRaiseIsRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaDB, nil)
	c := d.cell(0, fresh)
	read := c.tx.Begin()
	require.NoError(t, read.Find(&[]Tag{}).Error)
	begun := c.tx.Begin() // which has no snapshot yet
	newer := c.raised(c.sku, newerToken)
	err := read.WithContext(newer).Model(c.item(1)).Update("note", "x").Error
	require.ErrorContains(t, err, "before the fence was raised")
	require.True(t, sqlguard.Retryable(err))
	require.NoError(t, read.Rollback().Error)
	require.NoError(t, begun.WithContext(newer).Model(c.item(1)).Update("note", "x").Error)
	require.NoError(t, begun.Commit().Error)
}

// Rows that the caller reads may fail long after their statement, and nobody but he
// sees it.
func TestADeadlockThatOnlyTheReaderOfRowsSees(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaDB, nil)
	require.NoError(t, d.bare.Exec("INSERT INTO tags (id, name) SELECT seq, 'x' FROM seq_10_to_500").Error)
	require.NoError(t, d.bare.Exec("CREATE FUNCTION next_tag() RETURNS INT MODIFIES SQL DATA BEGIN UPDATE tags SET name = 'y' WHERE id = 1; RETURN 1; END").Error)
	locking := &sql.TxOptions{Isolation: sql.LevelSerializable}
	for i, tt := range []struct {
		options *sql.TxOptions
		fails   func(tx *gorm.DB) error
	}{
		{nil, func(tx *gorm.DB) error {
			var n int
			return tx.Raw("SELECT next_tag()").Scan(&n).Error
		}},
		{locking, func(tx *gorm.DB) error {
			var names []string
			return tx.Raw("SELECT name FROM tags").Scan(&names).Error
		}},
		{locking, func(tx *gorm.DB) error {
			rows, err := tx.Model(&Tag{}).Rows()
			if err != nil {
				return err
			}
			for rows.Next() {
			}
			return errors.Join(rows.Err(), rows.Close())
		}},
	} {
		c := d.cell(i, fresh)
		tx := c.tx.Begin(tt.options)
		require.NoError(t, tx.Model(c.item(1)).Update("note", "first").Error)
		other := c.bare.Begin()
		require.NoError(t, other.Exec("UPDATE tags SET name = 'heavy'").Error)
		done := make(chan error, 1)
		go func() { done <- other.Exec("UPDATE items SET stock = 9 WHERE id = 1").Error }()
		require.ErrorContains(t, tt.fails(tx), "1213", "%d", i)
		require.NoError(t, <-done)
		require.NoError(t, other.Rollback().Error)
		require.ErrorContains(t, cannotGoOn(t, c, tx), "rolled back this transaction by itself", "%d", i)
	}
}

// A lock that is not to be had now is no end of the transaction.
func TestAfterALockTimeoutTheTransactionGoesOn(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaDB, nil)
	c := d.cell(1, fresh)
	other := c.bare.Begin()
	require.NoError(t, other.Exec("UPDATE tags SET name = 'held'").Error)
	tx := c.tx.Begin()
	require.NoError(t, tx.Model(c.item(1)).Update("note", "first").Error)
	require.ErrorContains(t, tx.Clauses(clause.Locking{Strength: "UPDATE", Options: "NOWAIT"}).Find(&[]Tag{}).Error, "1205")
	require.NoError(t, tx.Model(c.item(1)).Update("note", "second").Error)
	require.NoError(t, tx.Commit().Error)
	require.NoError(t, other.Rollback().Error)
	require.Equal(t, "second", c.note())
}

func TestAGuardedWriteWithinTheRowsOfAnotherOne(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onSQLite, nil)
	c := d.cell(1, fresh)
	require.NoError(t, c.tx.Transaction(func(tx *gorm.DB) error {
		rows, err := tx.Raw("INSERT INTO tags (id, name) VALUES (71, 'a'), (72, 'b') RETURNING id").Rows()
		require.NoError(t, err)
		for rows.Next() {
			require.NoError(t, tx.Exec("UPDATE tags SET name = 'c' WHERE id = 1").Error)
			require.NoError(t, tx.Model(c.item(1)).Update("note", "within").Error)
		}
		return errors.Join(rows.Err(), rows.Close())
	}))
	require.Equal(t, "within", c.note())
}

// The transaction that GORM begins on one connection is unknown here; what SQLite says
// of its end is not covered up.
func TestALostTransactionOfAConnectionIsNoCommit(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onSQLite, nil)
	c := d.cell(1, fresh)
	require.ErrorContains(t, c.tx.Connection(func(conn *gorm.DB) error {
		return conn.Transaction(func(tx *gorm.DB) error {
			require.NoError(t, tx.Model(c.item(1)).Update("note", "gone").Error)
			_ = tx.Exec("INSERT OR ROLLBACK INTO tags (id, name) VALUES (1, 'twice')").Error
			return nil
		})
	}), "no transaction is active")
}

func TestTwoPluginsOnOnePool(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onSQLite, nil)
	c := d.cell(1, fresh)
	second, err := gorm.Open(sqlite.New(sqlite.Config{Conn: c.tx.ConnPool}), quiet())
	require.NoError(t, err)
	require.NoError(t, second.Use(gormguard.New(gormguard.WithTables("tags"))))
	require.ErrorIs(t, second.Exec("UPDATE tags SET name = 'x'").Error, guard.ErrNoFence)
	require.ErrorIs(t, second.Exec("UPDATE items SET note = 'x'").Error, guard.ErrNoFence)
	require.ErrorIs(t, second.Transaction(func(tx *gorm.DB) error { return tx.Exec("UPDATE tags SET name = 'x'").Error }), guard.ErrNoFence)
}
