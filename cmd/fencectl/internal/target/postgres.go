package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// connectTimeout bounds a connection attempt where the address has no
// connect_timeout of its own.
const connectTimeout = 10 * time.Second

// Postgres is the address of a Postgres database.
type Postgres struct {
	Setting
	Config *pgxpool.Config
}

// ParsePostgres reads a postgres:// URL or a string of keywords and values, as
// libpq does; what they leave out comes from the PG… variables. The error is
// ErrInvalid.
func ParsePostgres(s Setting) (*Postgres, error) {
	if s.Value == "" {
		return nil, missing("Postgres given; name one with --postgres postgres://user@host:port/database, or in FENCING_POSTGRES_URL or DATABASE_URL")
	}
	if strings.Contains(s.Value, "://") || !strings.Contains(s.Value, "=") {
		u, err := s.split("postgres", "postgresql")
		if err != nil {
			return nil, err
		}
		if u.User != nil {
			u.User = url.User(u.User.Username())
		}
		s.shown = shown(u)
	}
	c, err := pgxpool.ParseConfig(s.Value)
	if err != nil {
		return nil, s.bad(unparsed(err))
	}
	for name := range c.ConnConfig.RuntimeParams {
		if !parameterName.MatchString(name) { // a part of a value, most likely
			return nil, s.bad("a keyword is no name; put a value with spaces into single quotes")
		}
	}
	if c.ConnConfig.RuntimeParams["application_name"] == "" {
		c.ConnConfig.RuntimeParams["application_name"] = "fencectl"
	}
	if c.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		// The mode without prepared statements, which a PgBouncer may not follow.
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = connectTimeout
	}
	return &Postgres{s, c}, nil
}

var parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// unparsed says what pgx did not like, as far as that cannot be a password: not the
// string itself, nor the pieces of one that it could not take apart.
func unparsed(err error) string {
	const behindTheString = "`: "
	text := err.Error()
	at := strings.LastIndex(text, behindTheString)
	if reason := text[max(at, 0):]; at >= 0 && !strings.Contains(reason, "failed to parse as") {
		return OneLine(strings.TrimPrefix(reason, behindTheString))
	}
	return "this is not a connection string; write postgres://user@host:port/database (" + escapes + ")"
}

// String names the database, without the password.
func (p *Postgres) String() string {
	c := p.Config.ConnConfig
	return fmt.Sprintf("postgres://%s@%s/%s", c.User, p.HostPort(), cmp.Or(c.Database, c.User))
}

// HostPort names the server alone, or the directory of its socket.
func (p *Postgres) HostPort() string {
	c := p.Config.ConnConfig
	if strings.HasPrefix(c.Host, "/") {
		return c.Host
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}

// Connect opens one connection. The error is ErrUnreachable.
func (p *Postgres) Connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, p.Config.ConnConfig.Copy())
	if err != nil {
		return nil, p.unreachable(ctx, err)
	}
	return conn, nil
}

// Pool opens a pool of at most n connections, of which one is known to work. The
// error is ErrUnreachable.
func (p *Postgres) Pool(ctx context.Context, n int32) (*pgxpool.Pool, error) {
	c := p.Config.Copy()
	c.MaxConns, c.MinConns, c.MinIdleConns = n, 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err == nil {
		if err = pool.Ping(ctx); err == nil {
			return pool, nil
		}
		pool.Close()
	}
	return nil, p.unreachable(ctx, err)
}

// Unusable is the error for a database that lets the program in and then does not
// do what is needed. It is ErrUnreachable.
func (p *Postgres) Unusable(err error) error {
	return &failure{fmt.Sprintf("%s: cannot use %s: %s", p.Source, p, OneLine(err.Error())), ErrUnreachable}
}

func (p *Postgres) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	hint := "is a server running there?"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		hint = "the server answered and refused"
		switch {
		case strings.HasPrefix(pgErr.Code, "28"):
			hint = "check user and password; a password can also come from PGPASSWORD or ~/.pgpass"
		case pgErr.Code == "3D000":
			hint = "create the database or name another one"
		}
	}
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = connect.Unwrap()
	}
	text := err.Error()
	if plain := withoutTLS(text); plain != "" {
		text = plain
	} else if text != "" { // it was asked for TLS, and nothing else
		hint = "the server has no TLS: set ssl = on there, or, on a network that you trust, sslmode=disable in the address"
	}
	return &failure{fmt.Sprintf("%s: cannot connect to %s: %s; %s", p.Source, p, OneLine(text), hint), ErrUnreachable}
}

// withoutTLS leaves out that the server has no TLS: by default pgx tries without
// it next.
func withoutTLS(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(strings.TrimSpace(line), "server refused TLS connection") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// OneLine puts the lines of a text behind each other, each of them once: a driver
// reports every address and every TLS mode that it tried.
func OneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return Printable(strings.Join(lines, "; "))
}

// Printable quotes what a terminal does not print but obey, or what hides in a text: the
// name of a holder, say, is whatever somebody has written into the table. Line feeds stay.
func Printable(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r == '\n', unicode.IsPrint(r):
			b.WriteString(text[:size])
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		text = text[size:]
	}
	return b.String()
}
