package pgguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// errControl: a statement would end the transaction that carries the fence, and
// what follows it would be unguarded: "commit" and an update after it in one
// batch write without the gate, and so does a procedure that commits inside.
var errControl = errors.New("it would end the fenced transaction early; nothing was sent")

// checkInTx refuses sql if one of its statements would end the transaction in
// which it runs.
func checkInTx(sql string) error {
	var err error
	before := ""
	scanSQL(sql, func(words [3]string) bool {
		switch {
		case endsTx(words):
			err = fmt.Errorf("pgguard: statement %s: %w; return from the function, or use Commit and Rollback", strings.ToUpper(words[0]), errControl)
		case before != "" && isOneOf("execute", before, words[0]): // the driver can prepare COMMIT too
			err = errors.New("pgguard: statement EXECUTE: it may stand for COMMIT, and there is another one in the string; run it by itself; nothing was sent")
		}
		before = cmp.Or(words[0], "(")
		return err == nil
	})
	return err
}

// checkQueued is checkInTx for a query of a batch. A call by itself may have a name:
// where that stands for COMMIT nothing follows, and the next call notices, see isEnd.
func checkQueued(sql string) error {
	if err := checkInTx(sql); err != nil {
		return err
	}
	return checkName(sql)
}

// checkAlone refuses sql unless it is one statement that can be the second of an
// implicit transaction and leaves it as it is.
//
// CALL and DO are refused as well: in an implicit transaction of the extended
// protocol their body may commit, which gives up the gate, and go on.
func checkAlone(sql string) error {
	var err error
	count := 0
	scanSQL(sql, func(words [3]string) bool {
		count++
		switch {
		case endsTx(words), isOneOf(words[0], "begin", "start", "call", "do"):
			err = fmt.Errorf("pgguard: statement %s: outside InTx %w; use InTx", strings.ToUpper(words[0]), errControl)
		case isOneOf(words[0], "copy"): // a batch has no place for its data, and the connection breaks
			err = errors.New("pgguard: statement COPY: use CopyFrom, or InTx with the PgConn of tx.Conn(); nothing was sent")
		case count > 1:
			err = errors.New("pgguard: several statements in one string; use InTx or SendBatch; nothing was sent")
		}
		return err == nil
	})
	if err == nil && count == 0 {
		err = errors.New("pgguard: the statement is empty; nothing was sent")
	}
	if err == nil {
		err = checkName(sql)
	}
	return err
}

// checkName refuses a text that pgx may take for the name of a prepared statement,
// and EXECUTE. What they stand for is not known here, and may be CALL or COMMIT.
func checkName(sql string) error {
	if isCommand(sql) {
		return nil
	}
	return fmt.Errorf("pgguard: %.40q stands for a prepared statement, or is no command of PostgreSQL with what belongs to it; "+
		"give the text of the statement, which pgx prepares by itself and once; nothing was sent", sql)
}

// commands are the words with which a statement may begin, the usual ones first and
// without EXECUTE. Whatever else comes first is taken for a name.
var commands = strings.Fields("select insert update delete with merge values table set show lock savepoint release rollback " +
	"abort alter analyse analyze begin call checkpoint close cluster comment commit copy create deallocate declare discard do drop end " +
	"explain fetch grant import listen load move notify prepare reassign refresh reindex repack reset revoke security " +
	"start truncate unlisten vacuum wait")

// isCommand reports whether sql begins with a command and goes on after it. No more
// is looked at.
func isCommand(sql string) bool {
	begun := false
	for len(sql) > 0 {
		kind, size, _ := sqltext.Next(sqltext.Postgres, sql)
		token := sql[:size]
		sql = sql[size:]
		switch {
		case kind.IsBlank():
		case begun:
			return kind != sqltext.Semicolon
		case kind == sqltext.Semicolon, token == "(":
		case kind != sqltext.Word || !isOneOf(token, commands...):
			return false
		default:
			begun = true
		}
	}
	return false
}

// isEnd reports whether a statement of which the text is not known ended the
// transaction, as the server names what it did. The name is the same with AND CHAIN.
// For ROLLBACK TO it is that of ROLLBACK, which is taken for the worse.
func isEnd(tag pgconn.CommandTag) bool {
	return tag.String() == "COMMIT" || tag.String() == "ROLLBACK"
}

// hiding are the encodings of clients in which a byte that looks like a backslash may
// be the second one of a character. The server has none of them for itself.
var hiding = strings.Fields("BIG5 GB18030 GBK JOHAB SHIFT_JIS_2004 SJIS UHC")

// checkSession refuses a session in which the server would see the strings of a text
// end elsewhere than the checks do.
func checkSession(conn *pgx.Conn) error {
	pg := conn.PgConn()
	if pg.ParameterStatus("standard_conforming_strings") == "off" {
		return errors.New("standard_conforming_strings is off in the session, so a string could hide the end of the transaction; turn it on; nothing was sent")
	}
	if encoding := pg.ParameterStatus("client_encoding"); isOneOf(encoding, hiding...) {
		return fmt.Errorf("client_encoding is %s in the session, so a string could hide the end of the transaction; set it to UTF8; nothing was sent", encoding)
	}
	return nil
}

// A rewriter checks what another one has made of a statement.
type rewriter struct {
	pgx.QueryRewriter
	check func(sql string) error
}

func (r rewriter) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	sql, args, err := r.QueryRewriter.RewriteQuery(ctx, conn, sql, args)
	if err == nil {
		err = r.check(sql)
	}
	return sql, args, err
}

// checkRewritten returns args with every rewriter among the options at their
// beginning checked. Those of pgx put nothing but placeholders into a text.
func checkRewritten(args []any, check func(sql string) error) []any {
	for i, arg := range args {
		switch arg := arg.(type) {
		case pgx.NamedArgs, pgx.StrictNamedArgs, pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		case pgx.QueryRewriter:
			if checked, ok := arg.(rewriter); ok { // of a batch that was refused elsewhere
				arg = checked.QueryRewriter
			}
			args = slices.Clone(args)
			args[i] = rewriter{arg, check}
		default:
			return args
		}
	}
	return args
}

func endsTx(words [3]string) bool {
	switch {
	case isOneOf(words[0], "commit", "end", "abort"):
		return true
	case isOneOf(words[0], "rollback"):
		next := words[1]
		if isOneOf(next, "work", "transaction") {
			next = words[2]
		}
		return !isOneOf(next, "to") // ROLLBACK TO SAVEPOINT keeps what was entered before the savepoint
	case isOneOf(words[0], "prepare"):
		return isOneOf(words[1], "transaction")
	}
	return false
}

func isOneOf(word string, keywords ...string) bool {
	for _, k := range keywords {
		if strings.EqualFold(word, k) {
			return true
		}
	}
	return false
}

// scanSQL calls visit with the first three words of every statement of sql, until
// visit returns false. Of a statement that begins with anything but a word, such
// as "(select ...)", the words are empty.
func scanSQL(sql string, visit func(words [3]string) bool) {
	var (
		words [3]string
		n     int // tokens of this statement
		body  sqltext.Body
	)
	for len(sql) > 0 {
		kind, size, _ := sqltext.Next(sqltext.Postgres, sql)
		switch {
		case kind.IsBlank():
		case body.Has(sql[:size]):
		case kind == sqltext.Semicolon:
			if n > 0 && !visit(words) {
				return
			}
			words, n = [3]string{}, 0
		default:
			if kind == sqltext.Word && n < len(words) && (n == 0 || words[n-1] != "") {
				words[n] = sql[:size]
			}
			n++
		}
		sql = sql[size:]
	}
	if n > 0 {
		visit(words)
	}
}
