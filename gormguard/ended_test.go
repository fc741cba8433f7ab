package gormguard_test

import (
	"testing"

	driver "github.com/go-sql-driver/mysql"
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
}

// Each statement of a text counts, and not only the last one.
func TestS34_SavepointRollbackInATextOfSeveral(t *testing.T) {
	t.Parallel()
	for _, e := range []engine{onPostgres, onMariaTexts} {
		for _, text := range []string{"ROLLBACK TO SAVEPOINT a; RELEASE SAVEPOINT a", "ROLLBACK TO SAVEPOINT a; SAVEPOINT b", "COMMIT; BEGIN; SAVEPOINT a"} {
			t.Run(e.name+"/"+text, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, e, nil)
				c := d.cell(1, fresh)
				tx := c.tx.Begin()
				require.NoError(t, tx.Exec("SAVEPOINT a").Error)
				require.NoError(t, tx.Model(c.item(1)).Update("note", "undone").Error)
				require.NoError(t, tx.Exec(text).Error)
				if e.name == "mysql" && text[0] == 'R' { // its locks outlive the savepoint
					require.NoError(t, tx.Model(c.item(1)).Update("note", "kept").Error)
					require.NoError(t, tx.Commit().Error)
					return
				}
				_ = cannotGoOn(t, c, tx)
			})
		}
	}
}

// MySQL commits before these statements or in them, also where they fail.
func TestImplicitCommitsEndTheFence(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaDB, nil)
	require.NoError(t, d.bare.Exec("CREATE PROCEDURE committing() COMMIT").Error)
	for i, text := range []string{
		"CREATE TABLE others (id int)", "CHECK TABLE tags", "REPAIR TABLE tags", "INSTALL SONAME 'x'", "BACKUP STAGE END", "CALL committing()",
		"EXECUTE IMMEDIATE 'COMMIT'", "SET STATEMENT max_statement_time=1 FOR COMMIT", "SET STATEMENT max_statement_time=1 FOR DROP TABLE IF EXISTS others",
	} {
		c := d.cell(i, fresh)
		for _, query := range []bool{false, true} {
			tx := c.tx.Begin()
			require.NoError(t, tx.Model(c.item(1)).Update("note", "first").Error, text)
			if query {
				var rows []map[string]any
				_ = tx.Raw(text).Scan(&rows).Error
			} else {
				_ = tx.Exec(text).Error
			}
			require.ErrorContains(t, tx.Model(c.item(1)).Update("note", "x").Error, "ended this transaction", "%s: %v", text, query)
			tx.Rollback()
		}
	}
}

// What only looks as if it did must not get in the way.
func TestTransactionGoesOnAfterWhatDoesNotEndIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		e     engine
		texts []string
	}{
		{onMariaDB, []string{
			"CREATE TEMPORARY TABLE zz (id int)", "DROP TEMPORARY TABLE zz", "ANALYZE SELECT * FROM tags", "CALL quiet()", "CALL nobody()", "SET @a = 1",
			"EXECUTE IMMEDIATE 'DO 1'", "SET STATEMENT max_statement_time=9 FOR SELECT 1",
		}},
		{onPostgres, []string{"CREATE FUNCTION one() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END", "CREATE TABLE others (id int)"}},
		{onSQLite, []string{"CREATE TRIGGER tr AFTER INSERT ON tags BEGIN UPDATE owners SET name = 'x'; END", "CREATE TABLE others (id int)"}},
	} {
		t.Run(tt.e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, tt.e, nil)
			if tt.e.name == "mysql" {
				require.NoError(t, d.bare.Exec("CREATE PROCEDURE quiet() SET @a = 1").Error)
			}
			c := d.cell(1, fresh)
			tx := c.tx.Begin()
			defer tx.Rollback()
			require.NoError(t, tx.SavePoint("mine").Error)
			for _, text := range tt.texts {
				err := tx.Exec(text).Error
				require.Equal(t, text == "CALL nobody()", err != nil, "%s: %v", text, err)
				require.NoError(t, tx.SavePoint("later").Error)
				require.NoError(t, tx.Model(c.item(1)).Update("note", text).Error, text)
				require.NoError(t, tx.RollbackTo("later").Error)
			}
			require.NoError(t, tx.RollbackTo("mine").Error)
			require.NoError(t, tx.Model(c.item(1)).Update("note", "x").Error)
			require.NoError(t, tx.Commit().Error)
		})
	}
}

// That of the write would end the transaction that the caller has begun.
func TestGuardedWriteInATransactionBegunBySQL(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, e, nil)
			c := d.cell(1, fresh)
			before := c.rows()
			require.NoError(t, c.tx.Connection(func(conn *gorm.DB) error {
				tx := conn.Session(&gorm.Session{})
				require.NoError(t, tx.Exec("BEGIN").Error)
				require.NoError(t, tx.Exec("UPDATE tags SET name = 'undone' WHERE id = 2").Error)
				require.Error(t, tx.Exec(rawUpdate).Error)
				require.NoError(t, tx.Exec("ROLLBACK").Error)
				require.Equal(t, before, c.rows())
				return tx.Exec(rawUpdate).Error
			}))
			require.NotEqual(t, before, c.rows())
			var tag Tag
			require.NoError(t, c.bare.First(&tag, 2).Error)
			require.Equal(t, "blue", tag.Name)
		})
	}
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
