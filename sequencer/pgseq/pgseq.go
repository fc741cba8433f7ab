// Package pgseq is the sequencer on PostgreSQL, through pgx: a row per resource in
// the fence schema, which package migrations installs.
//
// A token is handed out only when its commit is on disk, whatever the session's
// synchronous_commit says, so that a crash repeats none. A restore to an earlier
// time does; then Next with the token of the store as after repairs the counter.
package pgseq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/hint"
	"github.com/go-fencing/fencing/sequencer"
)

// rollbackTimeout bounds what is done on a context that may be dead already.
const rollbackTimeout = 5 * time.Second

// A Sequencer counts in PostgreSQL. It is safe for concurrent use.
type Sequencer struct {
	pool    *pgxpool.Pool
	schema  string
	maxJump guard.Token
	call    string
}

var _ sequencer.Sequencer = (*Sequencer)(nil)

// An Option configures a [Sequencer].
type Option func(*Sequencer)

// WithSchema names the fence schema, exactly and without SQL quotes. Defaults to
// "fencing".
func WithSchema(name string) Option { return func(s *Sequencer) { s.schema = name } }

// WithMaxJump bounds how far after may be ahead of a counter. Defaults to
// [sequencer.DefaultMaxJump].
func WithMaxJump(d guard.Token) Option { return func(s *Sequencer) { s.maxJump = d } }

// New returns a sequencer on pool. It does not talk to the server, and never
// closes pool. The error names the option that makes no sense.
func New(pool *pgxpool.Pool, opts ...Option) (*Sequencer, error) {
	if pool == nil {
		return nil, errors.New("pgseq: the pool is nil")
	}
	s := &Sequencer{pool: pool, schema: "fencing", maxJump: sequencer.DefaultMaxJump}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("pgseq: an option is nil")
		}
		opt(s)
	}
	if s.schema == "" || len(s.schema) > 63 || strings.ContainsRune(s.schema, 0) {
		return nil, fmt.Errorf("pgseq: schema name %.80q is not 1 to 63 bytes without NUL", s.schema)
	}
	if s.maxJump <= 0 {
		return nil, fmt.Errorf("pgseq: greatest jump %d is not positive", s.maxJump)
	}
	s.call = "select " + pgx.Identifier{s.schema, "next_token"}.Sanitize() + "($1, $2, $3)"
	return s, nil
}

// Next implements [sequencer.Sequencer], in one round trip and one commit. Callers
// of the same resource wait for each other's commits.
func (s *Sequencer) Next(ctx context.Context, resource string, after guard.Token) (guard.Token, error) {
	if err := sequencer.Validate(resource, after); err != nil {
		return 0, err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, fmt.Errorf("pgseq: next %q: %w", resource, err)
	}
	defer conn.Release()
	token, err := s.next(ctx, conn, resource, after)
	if err != nil {
		rollback(ctx, conn)
		return 0, fmt.Errorf("pgseq: next %q: %w", resource, s.explain(err))
	}
	return token, nil
}

// next has a transaction of its own, so that the token counts before the caller
// learns it. The level is spelled out because at a higher one, which a session may
// have by default, callers of one resource would fail instead of waiting.
func (s *Sequencer) next(ctx context.Context, conn *pgxpool.Conn, resource string, after guard.Token) (token guard.Token, err error) {
	var b pgx.Batch
	b.Queue("begin isolation level read committed")
	b.Queue(s.call, resource, int64(after), int64(s.maxJump))
	b.Queue("commit")
	results := conn.SendBatch(ctx, &b)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	if _, err := results.Exec(); err != nil {
		return 0, err
	}
	if err := results.QueryRow().Scan((*int64)(&token)); err != nil {
		return 0, err
	}
	tag, err := results.Exec()
	if err == nil && tag.String() != "COMMIT" {
		err = pgx.ErrTxCommitRollback
	}
	return token, err
}

// rollback ends a transaction that was left open on conn. Where that fails, the
// pool closes the connection when it is released, and the server rolls back.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	if c := conn.Conn().PgConn(); c.IsClosed() || c.TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback") // see above
}

// explain adds to an error of the server its meaning, or what its reader can do
// about it.
func (s *Sequencer) explain(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch pgErr.Code {
	case "UF005":
		return fmt.Errorf("%w; the fence in the store is probably poisoned, an operator must run \"fencectl rebase\": %w", sequencer.ErrJump, err)
	case "22003": // numeric_value_out_of_range
		return fmt.Errorf("%w; an operator must run \"fencectl rebase\": %w", sequencer.ErrExhausted, err)
	case "3F000", "42883", "42P01": // no such schema, function, table
		return fmt.Errorf("schema %q has no sequencer in this database; run \"%s\": %w", s.schema, hint.Fencectl("migrate up", s.schema), err)
	case "42501": // insufficient_privilege
		return fmt.Errorf("this role may not use schema %q; grant it USAGE on the schema and EXECUTE on its functions: %w", s.schema, err)
	case "25006": // read_only_sql_transaction
		return fmt.Errorf("the server is a standby, or the session is read-only; connect to the primary: %w", err)
	}
	return err
}
