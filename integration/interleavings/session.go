package interleavings

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errRefused: the guard said no without an error of the server's.
var errRefused = errors.New("refused")

// A session is one client with its connection. While a step runs, only that step's
// goroutine touches it.
type session struct {
	name   string
	holder string
	token  int
	*connection

	read    int             // what it has read last
	pending []int           // what it has added and not yet committed
	step    Step            // the one that runs, or ran last
	running <-chan response // its answer, while there is none
	answer  *response       // it, until it is written down
	queue   []Step          // what waits for it
	out     bool            // it was refused: it does nothing more unless it says "again"
	dead    bool
}

// A connection whose client may die without a word. pgx would ask the server to cancel
// what runs, on a connection of its own, where a killed process asks nothing.
type connection struct {
	conn   *pgx.Conn
	silent atomic.Bool
}

func connect(ctx context.Context, url string) (*connection, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c := &connection{}
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if c.silent.Load() {
			return nil, errors.New("the client is dead")
		}
		return dial(ctx, network, addr)
	}
	c.conn, err = pgx.ConnectConfig(ctx, config)
	return c, err
}

type response struct {
	what string
	err  error
}

// A client holds what the steps of one run have in common.
type client struct {
	mode          Mode
	level         string
	key, resource string
}

// do runs one step and returns what to write down of it besides its name.
func (c *client) do(ctx context.Context, s *session, step Step) (string, error) {
	named, settings := options(step.Args)
	switch step.Verb {
	case "begin":
		level := c.level
		if len(named) == 1 {
			level = named[0]
		}
		return "", s.exec(ctx, "begin isolation level "+string(Levels[level]))
	case "raise":
		return c.check(ctx, s, c.mode.raise, c.args(s, named, settings))
	case "enter":
		return c.enter(ctx, s, named, settings)
	case "read":
		return c.look(ctx, s)
	case "add", "put":
		value, sql := number(step), c.mode.put
		if step.Verb == "add" {
			value, sql = s.read+value, c.mode.write
		}
		args := c.args(s, nil, settings)
		args["value"] = value
		_, err := c.check(ctx, s, sql, args)
		return "=" + strconv.Itoa(value), err
	case "addend":
		return c.addAndEnd(ctx, s, number(step))
	case "delete":
		return c.check(ctx, s, c.mode.remove, c.args(s, nil, settings))
	case "commit", "rollback":
		return "", s.exec(ctx, step.Verb)
	case "save":
		return "", s.exec(ctx, "savepoint s")
	case "undo":
		return "", s.exec(ctx, "rollback to savepoint s")
	case "sql":
		return c.check(ctx, s, named[0], c.args(s, nil, settings))
	}
	return "", fmt.Errorf("no step %q", step)
}

// options takes name=number apart from the other arguments.
func options(args []string) (named []string, settings map[string]int) {
	settings = map[string]int{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		n, err := strconv.Atoi(value)
		if !ok || err != nil || strings.Contains(arg, " ") {
			named = append(named, arg)
			continue
		}
		settings[name] = n
	}
	return named, settings
}

func (c *client) args(s *session, resources []string, settings map[string]int) pgx.NamedArgs {
	a := pgx.NamedArgs{"key": c.key, "resource": c.resource, "token": s.token, "nonce": "nonce of " + s.holder, "holder": s.holder, "timeout": 10_000, "idle": 0, "value": 0}
	if len(resources) > 0 {
		a["resource"] = c.resource + resources[0]
	}
	for name, value := range settings {
		a[name] = value
	}
	if a["idle"] == 0 {
		a["idle"] = nil
	}
	return a
}

// enter enters the resources in their order, or, where the mode has a way to sort them, all at once.
func (c *client) enter(ctx context.Context, s *session, resources []string, settings map[string]int) (string, error) {
	if len(resources) < 2 {
		return c.check(ctx, s, c.mode.enter, c.args(s, resources, settings))
	}
	if !c.mode.Shipped {
		for _, r := range resources {
			if what, err := c.check(ctx, s, c.mode.enter, c.args(s, []string{r}, settings)); err != nil {
				return what, err
			}
		}
		return "", nil
	}
	a := c.args(s, nil, settings)
	var names, nonces []string
	var tokens []int
	for _, r := range resources {
		names, tokens, nonces = append(names, c.resource+r), append(tokens, s.token), append(nonces, a["nonce"].(string))
	}
	a["resources"], a["tokens"], a["nonces"] = names, tokens, nonces
	return c.check(ctx, s, gateAll, a)
}

// check runs a statement that may refuse. Where the mode joins it with the read, the
// read is in it.
func (c *client) check(ctx context.Context, s *session, sql string, args pgx.NamedArgs) (string, error) {
	if sql == "" {
		return "", nil
	}
	reads := c.mode.joined && sql == c.mode.raise
	if reads {
		sql = "with guard as materialized (" + sql + ") select * from guard, (select n from {stock} where k = @key) as data"
	}
	rows, err := s.conn.Query(ctx, strings.ReplaceAll(sql, "{stock}", c.mode.table), args)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	ok := false
	for rows.Next() {
		into := []any{&ok}
		if reads {
			into = append(into, &s.read)
		} else if len(rows.FieldDescriptions()) == 0 || rows.FieldDescriptions()[0].DataTypeOID != 16 { // not a bool
			ok = true
			continue
		}
		if err := rows.Scan(into...); err != nil {
			return "", err
		}
	}
	if rows.Close(); rows.Err() != nil {
		return "", rows.Err()
	}
	switch tag := rows.CommandTag(); {
	case !tag.Select() && (tag.Insert() || tag.Update() || tag.Delete()):
		ok = tag.RowsAffected() > 0
	case !tag.Select():
		ok = true
	}
	if !ok {
		return "", errRefused
	}
	if reads {
		return fmt.Sprintf("and read %d", s.read), nil
	}
	return "", nil
}

// look reads the row and remembers it. Where the mode joins the read with the raise, it
// was read there.
func (c *client) look(ctx context.Context, s *session) (string, error) {
	if !c.mode.joined || s.conn.PgConn().TxStatus() != 'I' {
		if err := s.conn.QueryRow(ctx, "select n from "+c.mode.table+" where k = $1", c.key).Scan(&s.read); err != nil {
			return "", err
		}
	}
	return strconv.Itoa(s.read), nil
}

// addAndEnd sends the write and the COMMIT together, as a guard's DBTX does. The server
// goes on to the COMMIT whether or not the client still lives.
func (c *client) addAndEnd(ctx context.Context, s *session, n int) (string, error) {
	args := c.args(s, nil, nil)
	args["value"] = s.read + n
	var b pgx.Batch
	b.Queue(strings.ReplaceAll(c.mode.write, "{stock}", c.mode.table), args)
	b.Queue("commit")
	results := s.conn.SendBatch(ctx, &b)
	tag, err := results.Exec()
	if err := errors.Join(err, results.Close()); err != nil {
		return "", err
	}
	if tag.RowsAffected() == 0 {
		return "", errRefused
	}
	return fmt.Sprintf("=%d", s.read+n), nil
}

func (s *session) exec(ctx context.Context, sql string) error {
	_, err := s.conn.Exec(ctx, sql)
	return err
}

// brief says in a word what an error was.
func brief(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return "refused " + pgErr.Code
	}
	if errors.Is(err, errRefused) {
		return "refused"
	}
	return "failed"
}
