package pgguard_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/pgguard"
)

// fragments are what hides a statement from a careless reader, or makes a string
// look like one.
var fragments = []string{
	"commit", "COMMIT", "rollback", "end", "abort", "rollback to s", "rollback to savepoint s", "rollback work", "savepoint s", "release s", "commit and chain",
	"select 1", "select 2", "select '", "select E'", "select \"", "'", "''", "\"", "\\'", "\\", "e'x'", "E'x\\'y'", "U&'x'", "select $$", "$$", "$a$", "$b$", "$1", "a$$", "x$a$y",
	"create procedure pg_temp.p() begin atomic ", "begin atomic", "create function pg_temp.begin(atomic int) returns int return 1", "select 1 as case;", "; end;",
	"--", "-- commit\n", "\n", "/*", "*/", "/* /* */", "as x", "as \"a;b\"", ";", "; ", ";;", " ", "\t", "\r", "(", ")", ",", "1", "1e", "1a", "1e1", "+", "-", "/", "*", "é", "_",
}

// Whatever ends the transaction in the server is refused here. The server reads
// the same text in the simple protocol, where several statements fit in one
// string.
func TestNothingEndsTheTransactionUnnoticed(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	conn, err := pgx.Connect(t.Context(), db.url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	pg := conn.PgConn()
	exec := func(sql string) error { return pg.Exec(t.Context(), sql).Close() }
	ends := func(sql string) bool {
		require.NoError(t, exec("begin; set local fencing.held = 'mine'; savepoint s"))
		// An error would hide what comes before it, so it is only tried; what was
		// committed before the error counts all the same.
		_ = exec(sql)
		result := pg.ExecParams(t.Context(), "select current_setting('fencing.held', true)", nil, nil, nil, nil).Read()
		mine := result.Err == nil && string(result.Rows[0][0]) == "mine"
		inError := pg.TxStatus() == 'E'
		require.NoError(t, exec("rollback"))
		return !mine && !inError
	}
	random := rand.New(rand.NewPCG(1, 2))
	ended, refused := 0, 0
	for range 6000 {
		var b strings.Builder
		for range 1 + random.IntN(7) {
			b.WriteString(fragments[random.IntN(len(fragments))])
			if random.IntN(3) > 0 {
				b.WriteString([]string{" ", ";", "\n"}[random.IntN(3)])
			}
		}
		sql := b.String()
		err := pgguard.CheckInTx(sql)
		if err != nil {
			refused++
		}
		if ends(sql) {
			ended++
			require.Error(t, err, "%q ends the transaction", sql)
			require.Error(t, pgguard.CheckAlone(sql), "%q ends the transaction", sql)
		}
	}
	require.Greater(t, ended, 100, "the fragments make too few texts that the server understands")
	t.Logf("%d texts ended the transaction, %d were refused", ended, refused)
}

func TestLexicalChecks(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][2]bool{ // fine in a transaction; fine alone
		"select 1":                              {true, true},
		"select 1;":                             {true, true},
		"; select 1 ; ; -- end":                 {true, true},
		"(select 1) union (select 2)":           {true, true},
		"select 'a;commit'":                     {true, true},
		"select E'\\';commit;--'":               {true, true},
		"select E'a' -- c\n '\\';commit'":       {true, true},
		"select $$;commit$$, $a$;$$;$a$":        {true, true},
		"select $1, a$b$ from t":                {true, true},
		`select ";commit;"`:                     {true, true},
		"update t set commit = 1":               {true, true},
		"with begin as (select 1) select 1":     {true, true},
		"rollback to s":                         {true, true},
		"ROLLBACK\n/**/TRANSACTION TO s":        {true, true},
		"prepare p as select 1":                 {true, true},
		"select 1; select 2":                    {true, false},
		"call p()":                              {true, false},
		"DO $$ begin end $$":                    {true, false},
		"begin":                                 {true, false},
		"start transaction":                     {true, false},
		"":                                      {true, false},
		"execute p":                             {true, false},
		"copy t to stdout":                      {true, false},
		"execute p; select 1":                   {false, false},
		"settle":                                {true, false},
		"settle;":                               {true, false},
		"settle now":                            {true, false},
		"order.settle":                          {true, false},
		"\"settle\"":                            {true, false},
		"(settle)":                              {true, false},
		"select":                                {true, false}, // may be a name as well
		"update; -- x":                          {true, false},
		"((table t) union values (1))":          {true, true},
		"-- why\nLOCK t":                        {true, true},
		"/* unfinished commit":                  {true, false},
		"commit":                                {false, false},
		"/* /* */ */ commit":                    {false, false},
		"--x\rcommit":                           {false, false},
		"\f\v\tCoMmIt":                          {false, false},
		"select 'a\\';commit":                   {false, false},
		"select $a$x$a$;commit":                 {false, false},
		"select 1 /* ; */ ; /* */ end":          {false, false},
		"rollback and chain":                    {false, false},
		"rollback work":                         {false, false},
		"abort":                                 {false, false},
		"prepare transaction 'x'":               {false, false},
		"select \"a\"\"\";commit":               {false, false},
		"select e'\\\\';commit":                 {false, false},
		"select 1e1;commit":                     {false, false},
		"select 1e--'\n;commit;--'":             {false, false}, // a comment, and no exponent
		"select 1a$$;commit;--$$":               {false, false}, // up to Postgres 14 a$$ is a name
		"select é$$;commit;--$$":                {false, false}, // é$$ is a name
		"create function f() as $$a;commit;$$;": {true, true},
		"select 1; execute p":                   {false, false},
		"(select 1); execute p":                 {false, false},
		"create function f() returns int begin atomic select 1; select 2; end":                {true, true},
		"create function f() returns int begin atomic select 1; end; commit":                  {false, false},
		"create function f() returns int begin atomic select 1 as case; end; commit":          {false, false},
		"create function begin(atomic int) returns int as 'select 1' language sql; commit":    {false, false},
		"create function f() returns int set a.begin = atomic as 'select 1'; commit":          {false, false},
		"create or replace procedure p() begin atomic insert into t values ('commit;'); end;": {true, true},
	} {
		require.Equal(t, want[0], pgguard.CheckInTx(sql) == nil, "in a transaction: %q", sql)
		require.Equal(t, want[1], pgguard.CheckAlone(sql) == nil, "alone: %q", sql)
	}
}

// The server's word on what TestLexicalChecks takes for a body.
func TestBodyOfAFunctionIsNoStringThatEndsTheTransaction(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		const create = "create or replace function answer() returns int language sql begin atomic select 1; select case when true then 2 end; end"
		_, err := db.guard.Exec(ctx, create)
		require.NoError(t, err)
		require.NoError(t, db.guard.InTx(ctx, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(create)
			b.Queue("select answer()")
			_, err := tx.Exec(ctx, create+"; select answer();", pgx.QueryExecModeSimpleProtocol)
			return errors.Join(err, tx.SendBatch(ctx, b).Close())
		}))
		require.Equal(t, 2, one[int](db, "select answer()"))
	})
}

func FuzzLexicalChecks(f *testing.F) {
	for _, s := range fragments {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		if pgguard.CheckAlone(sql) == nil && pgguard.CheckInTx(sql) != nil {
			t.Errorf("%q is fine alone and not in a transaction", sql)
		}
		if pgguard.CheckInTx(sql+"\n;commit") == nil && pgguard.CheckInTx(sql+"*/\"'$$;commit") == nil && !strings.ContainsAny(sql, `'"$/\`) &&
			!strings.Contains(strings.ToLower(sql), "atomic") { // nor is what does not end run
			t.Errorf("%q hides a commit", sql)
		}
	})
}
