package sqltext_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/sqltext"
)

func TestStepsOfAText(t *testing.T) {
	t.Parallel()
	const pg, my, lite = sqltext.Postgres, sqltext.MySQL, sqltext.SQLite
	step := func(c sqltext.Control, verb, name string) sqltext.Step {
		return sqltext.Step{Control: c, Verb: verb, Name: name}
	}
	for _, tt := range []struct {
		dialects []sqltext.Dialect
		text     string
		want     []sqltext.Step
	}{
		{dialects, "select 1; update t set a = 1", nil},
		{dialects, "ROLLBACK TO a; RELEASE SAVEPOINT \"b\"; SAVEPOINT c", []sqltext.Step{
			step(sqltext.RollbackTo, "ROLLBACK", "a"), step(sqltext.Release, "RELEASE", "b"), step(sqltext.Savepoint, "SAVEPOINT", "c"),
		}},
		{dialects, "savepoint savepoint -- x", []sqltext.Step{step(sqltext.Savepoint, "SAVEPOINT", "savepoint")}},
		{dialects, "rollback; begin", []sqltext.Step{step(sqltext.End, "ROLLBACK", "rollback"), step(sqltext.End, "BEGIN", "begin")}},
		{[]sqltext.Dialect{lite}, "CREATE TRIGGER r BEFORE UPDATE ON t BEGIN SELECT CASE WHEN NEW.a < 0 THEN 1 END; SELECT 1; END; COMMIT", []sqltext.Step{step(sqltext.End, "COMMIT", "COMMIT")}},
		{[]sqltext.Dialect{pg}, "CREATE OR REPLACE FUNCTION f(a int) RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1 AS end; SELECT CASE WHEN true THEN 1 END; END; COMMIT", []sqltext.Step{step(sqltext.End, "COMMIT", "COMMIT")}},
		{[]sqltext.Dialect{pg}, "create procedure p() begin atomic end; end", []sqltext.Step{step(sqltext.End, "END", "end")}},
		// What only looks like a body, or like more of one.
		{[]sqltext.Dialect{pg}, "create procedure p() begin atomic select 1 as case; end; end", []sqltext.Step{step(sqltext.End, "END", "end")}},
		{[]sqltext.Dialect{pg}, "create function begin(atomic int) returns int return 1; end", []sqltext.Step{step(sqltext.End, "END", "end")}},
		{[]sqltext.Dialect{pg}, "create function f(begin atomic) returns int return 1; end", []sqltext.Step{step(sqltext.End, "END", "end")}},
		{[]sqltext.Dialect{pg}, "create function f() returns int set a.begin = atomic return 1; end", []sqltext.Step{step(sqltext.End, "END", "end")}},
		{[]sqltext.Dialect{pg}, "create table t as select begin atomic from s; end", []sqltext.Step{step(sqltext.End, "END", "end")}},
		{[]sqltext.Dialect{my}, "/*!999999 select */ COMMIT", []sqltext.Step{{Control: sqltext.Unknown}}},
		{[]sqltext.Dialect{my}, "SELECT '/*!'", nil},
		{[]sqltext.Dialect{my}, `set "autocommit" = 1`, []sqltext.Step{step(sqltext.End, "SET", "1")}},
		{[]sqltext.Dialect{lite}, "\ufeffCOMMIT", []sqltext.Step{step(sqltext.End, "COMMIT", "COMMIT")}},
		{[]sqltext.Dialect{my}, "check table t", []sqltext.Step{step(sqltext.Commits, "CHECK TABLE", "t")}},
		{[]sqltext.Dialect{my}, "create or replace temporary table t as select 1", []sqltext.Step{step(sqltext.Unknown, "CREATE", "1")}},
		{[]sqltext.Dialect{my}, "create temporary sequence s", []sqltext.Step{step(sqltext.Commits, "CREATE TEMPORARY", "s")}},
		{[]sqltext.Dialect{my}, "create or replace table t (a int)", []sqltext.Step{step(sqltext.Commits, "CREATE OR", ")")}},
		{[]sqltext.Dialect{my}, "create", []sqltext.Step{step(sqltext.Commits, "CREATE", "create")}},
		{[]sqltext.Dialect{my}, "set @a = 1, password = ''", []sqltext.Step{step(sqltext.Commits, "SET A", "")}},
		{[]sqltext.Dialect{my}, "set @a = 1, default role none", []sqltext.Step{step(sqltext.Commits, "SET A", "none")}},
		{[]sqltext.Dialect{my}, "set role default", nil},
		{[]sqltext.Dialect{my}, "call p", []sqltext.Step{step(sqltext.Unknown, "CALL", "p")}},
		{[]sqltext.Dialect{pg, lite}, "call p", nil},
		{[]sqltext.Dialect{my}, "set statement a = 1 for execute p", []sqltext.Step{step(sqltext.Unknown, "SET", "p")}},
		{[]sqltext.Dialect{my}, "(select 1) union select 2", nil},
		{[]sqltext.Dialect{my}, "set @a = 1", nil},
	} {
		for _, d := range tt.dialects {
			require.Equal(t, tt.want, sqltext.Steps(d, tt.text), "%s: %s", d, tt.text)
		}
	}
	// A setting of the server says where the string ends.
	require.Equal(t, []sqltext.Step{{Control: sqltext.Unknown}}, sqltext.Steps(my, `select '\'; commit --'`))
	require.Len(t, sqltext.Steps(pg, `select '\'; commit --'`), 2)
	require.Empty(t, sqltext.Steps(my, "insert into t values ('it\\'s'); ;\n"))
	require.Empty(t, sqltext.Steps(pg, `select 'a\b'; select E'\''`))
}
