package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
	"github.com/go-fencing/fencing/pgguard"
)

// A store is the way of a variant to the data.
type store interface {
	guard() guard.Guard // nil: nothing is raised
	inTx(ctx context.Context, way Way, op string, f guard.Fence, fn func(tx writer) error) error
	single(ctx context.Context, row history.Row) error
	definite(way Way) bool // an error of the commit, other than ErrCommitUnknown, says that nothing was written
}

// A writer is a transaction.
type writer interface {
	append(ctx context.Context, row history.Row) error
	exec(ctx context.Context, sql string, args ...any) error
	undone(ctx context.Context, fn func(tx writer) error) error // runs fn and rolls back to before it
}

// open makes the store of the variant.
func (p *program) open(config *pgx.ConnConfig) (closing func(), err error) {
	opts := []pgguard.Option{pgguard.WithSchema(p.FenceSchema), pgguard.WithLockTimeout(p.LockTimeout), pgguard.WithIdleTimeout(p.IdleTimeout)}
	fences, err := pgguard.New(p.pool, opts...)
	if err != nil {
		return nil, err
	}
	deferred, err := pgguard.New(p.pool, append(opts, pgguard.WithDeferredBegin())...)
	if err != nil {
		return nil, err
	}
	closing = func() {}
	switch p.Variant {
	case PgGuard:
		p.store = pgStore{fences, deferred, p.pool}
	case SQLGuard, GormGuard:
		closing, err = p.openSQL(config)
	case NoGuard, PopularLock:
		p.store = plainStore{program: p}
	case RowRule:
		p.store = plainStore{program: p, byRow: true}
	case PlainCheck:
		p.store = plainStore{program: p, raises: fences, check: p.plainCheck}
	case LaxRaise:
		p.store = plainStore{program: p, raises: laxGuard{p}, check: p.laxCheck}
	default:
		err = fmt.Errorf("unknown variant %q", p.Variant)
	}
	return closing, err
}

type pgStore struct {
	*pgguard.Guard
	deferred *pgguard.Guard
	pool     *pgxpool.Pool
}

func (s pgStore) guard() guard.Guard    { return s.Guard }
func (s pgStore) definite(way Way) bool { return way != ByHand }

func (s pgStore) inTx(ctx context.Context, way Way, op string, _ guard.Fence, fn func(tx writer) error) error {
	do := func(tx pgx.Tx) error { return fn(pgTx{tx}) }
	switch way {
	case ByHand:
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if err := s.Enter(ctx, tx); err != nil {
				return err
			}
			return do(tx)
		})
	case Repeatable:
		return s.InTxOptions(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, do)
	case Serializable:
		return s.InTxOptions(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable}, do)
	case Deferred:
		return s.deferred.InTx(ctx, do)
	case Once:
		return s.once(ctx, op, do)
	}
	return s.InTx(ctx, do)
}

// once submits an operation until its outcome is known, and then again, as a message is
// that is delivered twice. What refuses it after an attempt of unknown outcome may have
// come after a commit.
func (s pgStore) once(ctx context.Context, op string, do func(tx pgx.Tx) error) error {
	unknown := false
	for {
		err := s.Once(ctx, op, do)
		switch {
		case err == nil:
			_ = s.Once(ctx, op, func(pgx.Tx) error { panic(op + " was applied, and runs again") })
			return nil
		case unknown && !errors.Is(err, guard.ErrCommitUnknown):
			return fmt.Errorf("%w: %w", guard.ErrCommitUnknown, err)
		case !errors.Is(err, guard.ErrCommitUnknown), ctx.Err() != nil:
			return err
		}
		unknown = true
		time.Sleep(retryWait)
	}
}

func (s pgStore) single(ctx context.Context, row history.Row) error {
	_, err := s.Exec(ctx, history.Single, row.Args()...)
	return err
}

type pgTx struct{ pgx.Tx }

func (tx pgTx) append(ctx context.Context, row history.Row) error { return row.Write(ctx, tx.Tx) }

func (tx pgTx) exec(ctx context.Context, sql string, args ...any) error {
	_, err := tx.Exec(ctx, sql, args...)
	return err
}

func (tx pgTx) undone(ctx context.Context, fn func(tx writer) error) error {
	inner, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(fn(pgTx{inner}), inner.Rollback(ctx))
}

// A plainStore is that of a negative control: a transaction as everybody writes it,
// with a check of its own or none.
type plainStore struct {
	*program
	raises guard.Guard
	check  func(ctx context.Context, tx pgx.Tx, f guard.Fence) error
	byRow  bool
}

func (s plainStore) guard() guard.Guard { return s.raises }
func (s plainStore) definite(Way) bool  { return false }

func (s plainStore) single(context.Context, history.Row) error {
	return errors.New("the controls write in transactions")
}

func (s plainStore) inTx(ctx context.Context, _ Way, _ string, f guard.Fence, fn func(tx writer) error) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	if s.check != nil {
		if err := s.check(ctx, tx, f); err != nil {
			return err
		}
	}
	var w writer = pgTx{tx}
	if s.byRow {
		w = rowTx{pgTx{tx}, guard.NewContext(ctx, f)}
	}
	if err := fn(w); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// A rowTx checks the version column of the balance, and nothing else.
type rowTx struct {
	pgTx
	fenced context.Context
}

func (tx rowTx) append(ctx context.Context, row history.Row) error {
	err := pgguard.UpdateRow(tx.fenced, tx.Tx, pgguard.RowUpdate{
		Table: pgx.Identifier{"balance"}, Resource: row.Resource,
		Key: map[string]any{"resource": row.Resource}, Set: map[string]any{"value": row.Balance()},
	})
	if err != nil {
		return err
	}
	return row.Insert(ctx, tx.Tx)
}

// plainCheck looks at the fence that is in force, and keeps nobody from changing it.
func (p *program) plainCheck(ctx context.Context, tx pgx.Tx, f guard.Fence) error {
	sql := "SELECT token, nonce FROM " + pgx.Identifier{p.FenceSchema, "fence"}.Sanitize() + " WHERE resource = $1"
	return p.compare(ctx, tx, sql, f)
}

// laxCheck is the check as it should be.
func (p *program) laxCheck(ctx context.Context, tx pgx.Tx, f guard.Fence) error {
	return p.compare(ctx, tx, "SELECT token, nonce FROM lax_fence WHERE resource = $1 FOR SHARE", f)
}

func (p *program) compare(ctx context.Context, tx pgx.Tx, sql string, f guard.Fence) error {
	var current guard.Fence
	err := tx.QueryRow(ctx, sql, f.Resource).Scan((*int64)(&current.Token), &current.Nonce)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return guard.ErrNotRaised
	case err != nil:
		return err
	case current.Token != f.Token || current.Nonce != f.Nonce:
		return &guard.StaleError{Held: f, Current: current}
	}
	return nil
}

// A laxGuard lets an equal token pass, whosever it is.
type laxGuard struct{ *program }

func (g laxGuard) Raise(ctx context.Context, f guard.Fence) error {
	tag, err := g.pool.Exec(ctx, `INSERT INTO lax_fence AS l (resource, token, nonce) VALUES ($1, $2, $3)
		ON CONFLICT (resource) DO UPDATE SET token = excluded.token, nonce = excluded.nonce WHERE excluded.token >= l.token`,
		f.Resource, int64(f.Token), f.Nonce)
	if err != nil || tag.RowsAffected() == 1 {
		return err
	}
	current := guard.Fence{Resource: f.Resource}
	if err := g.pool.QueryRow(ctx, "SELECT token, nonce FROM lax_fence WHERE resource = $1", f.Resource).Scan((*int64)(&current.Token), &current.Nonce); err != nil {
		return err
	}
	return &guard.StaleError{Held: f, Current: current}
}
