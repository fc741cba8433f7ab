package gormguard_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

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

// In a text that the server may read in another way than this package a commit may be
// hidden.
func TestACommitHiddenInAComment(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaTexts, nil)
	c := d.cell(1, fresh)
	tx := c.tx.Begin()
	require.NoError(t, tx.Model(c.item(1)).Update("note", "first").Error)
	require.NoError(t, tx.Exec("DO 1 /*!999999 ' */; COMMIT; DO 1 /*!999999 ' */").Error)
	require.ErrorIs(t, cannotGoOn(t, c, tx), guard.ErrCommitUnknown)
}

func TestAProcedureThatRollsBackIsNoCommit(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaDB, nil)
	require.NoError(t, d.bare.Exec("CREATE PROCEDURE careful() BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION ROLLBACK; INSERT INTO tags (id) VALUES (1); INSERT INTO tags (id) VALUES (1); END").Error)
	for i, then := range []func(tx *gorm.DB) error{
		func(*gorm.DB) error { return nil },
		func(tx *gorm.DB) error { return tx.Find(&[]Tag{}).Error },
	} {
		c := d.cell(i, fresh)
		before := c.rows()
		require.ErrorIs(t, c.tx.Transaction(func(tx *gorm.DB) error {
			require.NoError(t, tx.Model(c.item(1)).Update("note", "gone").Error)
			require.NoError(t, tx.Exec("CALL careful()").Error)
			return then(tx)
		}), guard.ErrCommitUnknown)
		require.Equal(t, before, c.rows())
	}
}

// A statement that fails, of a text that cannot be read for certain, has not ended a
// transaction of Postgres: a savepoint saves it.
func TestASavepointSavesWhatCannotBeReadForCertain(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onPostgres, nil)
	c := d.cell(1, fresh)
	require.NoError(t, c.tx.Transaction(func(tx *gorm.DB) error {
		require.NoError(t, tx.Model(c.item(1)).Update("note", "first").Error)
		require.Error(t, tx.Transaction(func(tx *gorm.DB) error {
			return tx.Exec(`INSERT INTO tags (id, name) SELECT 1, 'a;b\'`).Error
		}))
		return tx.Model(c.item(1)).Update("note", "second").Error
	}))
	require.Equal(t, "second", c.note())
}

// A procedure of the same text may commit what was entered.
func TestAGuardedWriteAfterACallInOneTextIsRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaTexts, nil)
	require.NoError(t, d.bare.Exec("CREATE PROCEDURE commits() COMMIT").Error)
	c := d.cell(1, fresh)
	const text = "CALL commits(); UPDATE items SET note = 'late' WHERE id = 1"
	require.ErrorIs(t, c.tx.Exec(text).Error, gormguard.ErrRaw)
	require.ErrorIs(t, c.tx.Transaction(func(tx *gorm.DB) error { return tx.Exec(text).Error }), gormguard.ErrRaw)
}
