package sqlguard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/sqlguard"
)

const allDialects = sqlguard.Dialect("all")

func TestControlOfTransactionsIsSeen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect sqlguard.Dialect
		text    string
		refused bool
	}{
		{allDialects, "commit", true},
		{allDialects, "  -- x\n COMMIT", true},
		{allDialects, "/* a */ End", true},
		{allDialects, "select 1; commit", true},
		{allDialects, "rollback", true},
		{allDialects, "rollback work", true},
		{allDialects, "BEGIN IMMEDIATE", true},
		{allDialects, "start transaction", true},
		{allDialects, "rollback to s", false},
		{allDialects, "rollback work to savepoint s", false},
		{allDialects, "savepoint s", false},
		{allDialects, "release savepoint s", false},
		{allDialects, "select 'a; commit'", false},
		{allDialects, "update t set a = 'it''s; commit' -- ; commit", false},
		{allDialects, "update t set commit = 1", false},
		{allDialects, "(select 1)", false},
		{allDialects, "", false},
		{allDialects, "select 'unterminated; commit", false},
		{sqlguard.Postgres, "select $x$ ; commit $x$", false},
		{sqlguard.Postgres, "select $1; commit", true},
		{sqlguard.Postgres, "select /* /* */ ; commit */ 1", false},
		{sqlguard.MySQL, "select /* /* */ ; commit", true},
		{sqlguard.SQLite, "select /* /* */ ; commit", true},
		{sqlguard.Postgres, `select E'\'; commit'`, false},
		{sqlguard.Postgres, "select E'a'\n'\\''; commit --'", true},
		{sqlguard.Postgres, "select 1a$$; commit; --$$", true},
		{sqlguard.Postgres, "-- x\r'\n; commit --'", false}, // the line ends at \r
		{sqlguard.MySQL, "-- x\r'\n; commit --'", true},
		{sqlguard.SQLite, "-- x\r'\n; commit --'", true},
		{sqlguard.Postgres, `select '\'; commit`, true},
		{sqlguard.MySQL, `select '\'; commit'`, true}, // with NO_BACKSLASH_ESCAPES
		{sqlguard.MySQL, `select 'it\'s'`, false},
		{sqlguard.MySQL, `select 'it\'s';`, false},
		{sqlguard.MySQL, "select */* it's */ from t; commit /*'*/", true},
		{sqlguard.MySQL, "select /*!50000 distinct */* from t; commit /* x */", true},
		{sqlguard.MySQL, "select /*!50000 distinct */* from t; select 1", false},
		{sqlguard.MySQL, `select 'a\n'; select "\\x;"`, false},
		{sqlguard.Postgres, `select '\''; commit; select '\''`, true}, // with standard_conforming_strings off
		{sqlguard.SQLite, `select '\'; commit`, true},
		{sqlguard.Postgres, "prepare transaction 'x'", true},
		{sqlguard.Postgres, "prepare s as select 1", false},
		{sqlguard.MySQL, "/*!50000 commit */", true},
		{sqlguard.MySQL, "/*M!100000 rollback */", true},
		{sqlguard.MySQL, "# x ; \ncommit", true},
		{sqlguard.MySQL, "select 1 --1; commit", true},
		{sqlguard.MySQL, "select `a; commit`", false},
		{sqlguard.SQLite, "select [a; commit]", false},
		{sqlguard.MySQL, "set autocommit = 0", true},
		{sqlguard.MySQL, "set @@session.autocommit=0", true},
		{sqlguard.MySQL, "xa end 'x'", true},
		{sqlguard.MySQL, "alter table t add c int", true},
		{sqlguard.MySQL, "create table t (a int)", true},
		{sqlguard.MySQL, "create temporary table t (a int)", false},
		{sqlguard.MySQL, "drop temporary table t", false},
		{sqlguard.MySQL, "create or replace temporary table t (a int)", false},
		{sqlguard.MySQL, "create temporary sequence s", true},
		{sqlguard.MySQL, "set @a = 1, password = 'x'", true},
		{sqlguard.MySQL, "TRUNCATE t", true},
		{sqlguard.MySQL, "load data infile 'x' into table t", false},
		{sqlguard.MySQL, "set password = 'x'", true},
		{sqlguard.MySQL, "set @a = 1", false},
		{sqlguard.MySQL, "set statement max_statement_time=1 for commit", true},
		{sqlguard.MySQL, "set statement max_statement_time=1 for drop table t", true},
		{sqlguard.MySQL, "set statement max_statement_time=1 for set statement a=1 for rollback", true},
		{sqlguard.MySQL, "set statement max_statement_time=1 for update t set a = 1", false},
		{sqlguard.MySQL, "set statement a=(select 1 from t for update) for commit", true},
		{sqlguard.MySQL, "repeat commit; until true end repeat", true},
		{sqlguard.MySQL, "analyze table t", true},
		{sqlguard.MySQL, "analyze local table t", true},
		{sqlguard.MySQL, "analyze select 1", false},
		{sqlguard.MySQL, "analyze format=json select 1", false},
		{sqlguard.Postgres, "create function f() returns int begin atomic select 1; select 2; end", false},
		{sqlguard.Postgres, "create or replace procedure p() begin atomic select 1; end; commit", true},
		{sqlguard.Postgres, "create table t (begin int, atomic int); commit", true},
		{sqlguard.SQLite, "create trigger a after insert on t begin update u set b = 1; end", false},
		{sqlguard.SQLite, "create temp trigger a after insert on t begin update u set b = 1; end; commit", true},
		{sqlguard.SQLite, "create table trigger_begin (a); commit", true},
		{sqlguard.SQLite, "create table begin (trigger); commit", true},
		{sqlguard.MySQL, "start slave", true},
		{sqlguard.MySQL, "set default role none", true},
		{sqlguard.MySQL, "set session `AutoCommit` = 0", true},
		{sqlguard.MySQL, "execute immediate 'commit'", true},
		{sqlguard.MySQL, "prepare p from 'commit'", true},
		{sqlguard.MySQL, "execute p", true},
		{sqlguard.MySQL, "deallocate prepare p", false},
		{sqlguard.MySQL, "repeat commit; until 1 end repeat", true},
		{sqlguard.MySQL, "if 1 then commit; end if", true},
		{sqlguard.MySQL, "use other", true},
		{sqlguard.MySQL, "select 1 from t use index (i)", false},
		{sqlguard.MySQL, "/*!999999 ' */ commit -- '", true},
		{sqlguard.MySQL, "/*M!999999 ' */ truncate t -- '", true},
		{sqlguard.MySQL, "/*!999999 select */ commit", true},
		{sqlguard.MySQL, "/*!999999 select */ /*!40000 commit */", true},
		{sqlguard.MySQL, "rollback /*!999999 to s */", true},
		{sqlguard.MySQL, "select 1 /*!999999 /* x */ */", true},
		{sqlguard.MySQL, "select 1 /*!1*/ /*!2*/ /*!3*/ /*!4*/ /*!5*/", true},
		{sqlguard.MySQL, "select /*!40001 sql_no_cache */ 1", false},
		{sqlguard.MySQL, "/*!40101 set names utf8mb4 */", false},
		{sqlguard.MySQL, "select '/*!40000 commit */'", false},
		{sqlguard.Postgres, "truncate t", false},
		{sqlguard.SQLite, "drop table t", false},
	} {
		dialects := []sqlguard.Dialect{c.dialect}
		if c.dialect == allDialects {
			dialects = []sqlguard.Dialect{sqlguard.Postgres, sqlguard.MySQL, sqlguard.SQLite}
		}
		for _, d := range dialects {
			err := sqlguard.CheckControl(d, c.text, true, true)
			require.Equal(t, c.refused, err != nil, "%s: %s: %v", d, c.text, err)
		}
	}
	require.Error(t, sqlguard.CheckControl(sqlguard.SQLite, "savepoint s", false, true))
	require.NoError(t, sqlguard.CheckControl(sqlguard.MySQL, "truncate t", true, false))
}

func FuzzLexCoversTheText(f *testing.F) {
	for _, s := range []string{"select 'a' -- b", "$x$ y $x$", "/* /* */", "`a", "[b", "E'\\'", "/*!50000 a */", "#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, d := range []sqlguard.Dialect{sqlguard.Postgres, sqlguard.MySQL, sqlguard.SQLite} {
			_ = sqlguard.CheckControl(d, s, true, true)
			_ = sqlguard.PlainRead(d, s)
		}
	})
}
