// Package gormguard is a GORM plugin that lets a write to a guarded table pass
// only under the fence of the caller's lease.
//
//	guarded := gormguard.New(gormguard.WithModels(&Item{}))
//	err := db.Use(guarded)
//	...
//	err = db.WithContext(lease.Context()).Save(&item).Error // guard.ErrStale for a late holder
//
// After db.Use the plugin is a [guard.Guard]: give it to the locker, which raises
// every fence in the database before the holder's first read.
//
// # What is guarded
//
// Tables, by their names: those of [WithTables], and those of models that have a
// field with the tag gorm:"fence", or a method FenceResource (see [Fenced]). A
// model is found when GORM meets it: its table is guarded from then on, and until then raw
// SQL on it passes, which db.Use cannot know. Name it in [WithModels], so that it is
// guarded from the beginning. The name counts and not the Go type, so it does
// not matter whether a statement comes from the model, from another struct on the
// same table, from Table("items AS i"), from a clause that names another table, or
// from raw SQL. In ModeFence that goes for the many2many join tables of these models
// as well; in the others give the join table a model with a version column
// (SetupJoinTable) and name it in WithModels.
//
// A write to a guarded table whose context carries no fence is [guard.ErrNoFence].
// If the model says which fence a row needs, that one must be in the context, for
// every row. A model that has its key is believed, as in Model(item).Update("note", x)
// and Delete(item). Where it cannot answer for the rows, these are read and asked
// first:
//
//   - with Model(&Item{}).Where(...), with Item{ID: 1}, and with conditions that may
//     reach further than the key, such as Or, Not, and text with OR;
//   - where a column is set that the resource depends on, as with Save, Updates(item)
//     and an upsert with UpdateAll: a row that goes from one resource to another needs
//     the fences of both. Select("Note").Updates(item) sets less.
//
// That costs one SELECT of whole rows, as many as the statement writes, which are not
// kept, and which end at the first row whose fence is missing. It runs in the
// transaction of the write, which is opened for it with SkipDefaultTransaction. With a
// LIMIT of MySQL the statement is kept to the rows that were asked, by their keys.
//
// Whether the resource depends on a column is found out by calling FenceResource with
// other values; one that tells only certain values apart, such as a status, may be
// taken for one that does not. If it depends on a column that is set to what only the
// database can say, the statement is [ErrRaw]: an expression of SQL, a value that the
// field does not take as it is ("010" for a number), what a serializer has yet to read,
// a clause with a builder of its own. Other columns are free, as in
// Update("stock", gorm.Expr("stock - 1")).
//
// A row takes foreign keys from the models to which it belongs, so it is asked when
// GORM has saved these. If it is refused, they are rolled back with it, but not with
// SkipDefaultTransaction.
//
// A preloaded model of another resource is saved along, belongs-to or has-many, and needs
// its fence: Omit(clause.Associations) leaves it out. Association("Items").Clear() of
// children whose resource is their foreign key moves them to that of no parent, and needs
// that fence: Association("Items").Unscoped().Clear() deletes them instead.
//
// An upsert finds stored rows by the columns of its ON CONFLICT, or else by the keys
// and unique indexes that the model declares, with the defaults that GORM or the tag
// give them. In MySQL it locks those by a second SELECT, and not the gaps where there
// are none, which would be a deadlock of everybody's inserts. A row that comes into one
// meanwhile makes the statement fail; then it is asked too, and the statement repeated
// once. UPDATE OR REPLACE, and modifiers that are unknown, are [ErrRaw].
//
// Not seen is what only the database knows: a row of another resource of which the
// model says that it is ours and sets nothing of that, and defaults, generated columns
// and triggers that the model does not declare. Nor is, at READ COMMITTED, as is usual
// in Postgres, a row of another resource that comes within reach of the statement
// between the question and the write: that its holder inserts or changes in that
// moment. Raw SQL, Table("items") and other structs do not say which rows they mean:
// any fence will do for them. A trigger of migrations.Protect that is told the resource
// sees all of these.
//
// A table that a statement on another one only reads needs no fence: in a subquery,
// after INSERT ... SELECT, and after the FROM of an UPDATE. MySQL's UPDATE and DELETE
// of several tables count as writes to each of them. A text that cannot be read for
// certain (a backslash before a quote, a comment that some versions of MySQL run, SET
// STATEMENT, CALL, PREPARE) counts as a write to a guarded table that it names. An
// ALTER TABLE is a write if it drops, moves or computes what is in rows (DROP COLUMN,
// RENAME, DETACH PARTITION, SET SCHEMA, TYPE ... USING other than a cast of the
// column, which AutoMigrate writes); a new column or another type is none.
//
// # ModeFence
//
// The default. The transaction of the write has entered every fence of the
// statement's context, which package sqlguard checks against the fence that is in
// force. Where there is no transaction, as with SkipDefaultTransaction, one is
// opened for the statement. A holder whose fence was superseded gets
// [guard.ErrStale] and writes nothing, even to rows that nobody has touched since,
// and to new rows. While a transaction has entered a fence, no later one can be
// raised, so the later holder reads everything that was written.
//
// What it rests on is that the statement passes through GORM and names its table.
// It does not see: statements on db.DB() (open a pool of their own with sqlguard.Wrap,
// or ask for a trigger), SQL that a server puts together itself (functions, updatable views,
// dynamic SQL in DO or of a variable, foreign keys that cascade, DROP SCHEMA), and
// other programs. In Postgres
// the trigger of migrations.Protect stops those, too; a trigger of the others
// cannot know what its transaction has entered.
//
// A transaction that reads before it writes should call [Enter] first. What it has
// read is otherwise checked only when it writes, and SQLite may refuse to make a
// writer of it then, as without a guard (sqlguard.Retryable says so).
//
// A write that was refused dooms its transaction, for whatever reason it was: Commit
// rolls back and returns the refusal, unless the write was in a savepoint that was
// rolled back. So does an error with which MySQL or SQLite has rolled back by itself,
// a deadlock for example: the caller who swallows it writes nothing guarded any more.
// The error of rows that the caller reads (Rows, Row, Raw with Scan) only he sees; so
// the next guarded write and the commit ask the database for its transaction. In MySQL
// all rows must have been closed by then.
//
// Entering is lost by ROLLBACK TO, and then done again before the next write. After a
// statement that may have ended the transaction, such as CALL in MySQL, a savepoint
// of this package shows whether it has; if so, guarded writes are refused, and the
// commit is [guard.ErrCommitUnknown] if there were any.
//
// That does not reach a transaction begun on the *gorm.DB of Connection, or by a
// plugin with a pool of its own: there every write enters, but that the database has
// rolled back, or committed before a statement of MySQL, is not seen, and what is
// written then may be late. Nor does it reach statements that the caller prepares on
// Statement.ConnPool, the errors of rows that he queries there, and transactions of a
// session with PrepareStmt that was taken before db.Use. In a transaction begun by SQL on the *gorm.DB of Connection raw
// guarded writes are refused; those of models commit it, as GORM's do with its
// default transaction.
//
// # ModeRow
//
//	type Counter struct {
//		ID    int64
//		Value int
//		Token int64 `gorm:"fence;not null;default:0"`
//	}
//
// For databases without the fence schema. The tag names the version column as above;
// without not null AutoMigrate makes one that may be NULL, which db.Use refuses. Every
// row carries the token of the fence under which it was written last; a write under an
// earlier token is [guard.ErrStale], and a write that passes stamps its token. It takes
// the place of no statement and adds none: the comparison is in the statement itself,
// in a form that makes the server fail on a stale row, so a statement writes all of its
// rows or none. A row that is missing is 0 rows, as without a guard. On Postgres the
// failure ends the surrounding transaction, like every error there. Elsewhere a refusal
// leaves it as it was, and a caller who swallows it commits the rest.
//
// It is the weaker rule, and does not catch
//
//   - a late writer before the newer holder has written the row: what the newer
//     holder has read meanwhile is lost;
//   - an insert of a new key, and of one that was deleted: a hard delete leaves no
//     token behind;
//   - ON CONFLICT DO NOTHING, which changes nothing;
//   - several transactions that GORM makes of one call: Association("Tags").Replace
//     may have added when its removal is refused. Put it in a db.Transaction;
//   - a newer row out of reach of the conditions, unless the statement names rows
//     by their primary keys.
//
// A statement that names rows by their keys and meets none costs a second round
// trip, which tells a missing row from a newer one. In MySQL that is also one which
// changes nothing: the server counts the rows that are changed, unless the data
// source name has clientFoundRows=true.
//
// Raw SQL on a guarded table is [ErrRaw] in this mode, as are INSERT OR REPLACE and
// other modifiers such as IGNORE, ORDER BY and LIMIT, joins, comments, and clauses with builders of
// their own. [Unguarded] is the way out, which the observer hears of. Soft delete
// rather than delete, so that tokens stay.
//
// # Several fences
//
// ModeFence enters all that the context carries. ModeRow compares with that of the
// row's FenceResource, or else with the only one; with more it is refused, as is a
// stored row that needs another one than the statement's model.
//
// # Compatibility
//
// GORM's pool is wrapped: db.DB works, but a type assertion on Statement.ConnPool
// to *sql.DB or *sql.Tx does not succeed any more, as with PrepareStmt. Call db.Use
// before plugins that replace GORM's callbacks. Hooks of a model run under the
// entered fence in GORM's default transaction, and before the check with
// SkipDefaultTransaction. Statements called on Statement.ConnPool itself are
// guarded; with PrepareStmt they are refused.
package gormguard
