package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-fencing/fencing/guard"
)

// A Tx is the least that is needed of a transaction: *sql.Tx, a *sql.Conn inside
// of one, and the ConnPool of GORM have it.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Enter enters fences in a transaction that the caller has begun, or every fence
// of ctx if none is given. It returns [guard.ErrNoFence], before anything is sent,
// if there is none at all, and [guard.ErrStale] or [guard.ErrNotRaised] if a fence
// is not the one in force. After any error the transaction must be rolled back.
//
// Call it before the transaction reads or writes anything, and before its first
// savepoint: PostgreSQL gives up what was entered inside a savepoint when that is
// rolled back, and SQLite cannot always make a writer of a transaction that has
// read ([Retryable] then); so is, in MySQL, a fence that was raised since a
// transaction above READ COMMITTED has read, which sees what was there before it.
// Enter remembers nothing, so it may be called as often as
// you like.
//
// The transaction must not go on after an error with which the database has rolled
// it back, nor be committed: see [Guard.InTx], and [Guard.Commit], which notices.
//
// The settings are the defaults; [Guard.Enter] takes those of the guard.
func Enter(ctx context.Context, d Dialect, tx Tx, fences ...guard.Fence) error {
	standard, ok := standards[d]
	if !ok {
		_, err := d.engine()
		return err
	}
	if tx == nil {
		return errNilTx
	}
	return enter(ctx, standard.engine, &standard.settings, sqlSession{tx}, fences, entering{first: isFresh(tx)})
}

// RolledBack reports whether the database has rolled back the transaction of tx by
// itself when a statement failed with err: MySQL and MariaDB do so after a deadlock,
// SQLite after INSERT OR ROLLBACK. What follows would be committed statement by
// statement, without the fence, so nothing but a rollback may follow. Postgres
// refuses the rest by itself. [Wrap] asks this for you.
//
// Of an error that tells, such as a deadlock, nothing is sent. A nil err is for a
// statement whose error only others have seen, as that of rows which they read: then the
// database is asked, in a round trip, and also after a lock wait timeout, which ends the
// transaction with innodb_rollback_on_timeout only. An answer that does not come, as
// where rows are still open in MySQL, is taken for yes.
//
// In SQLite the answer is found by BEGIN. Where that succeeds there is another
// transaction now, to be rolled back as the first would have been.
func RolledBack(ctx context.Context, d Dialect, tx Tx, err error) bool {
	e, unknown := d.engine()
	return unknown == nil && e.rolledBack(within(ctx), sqlSession{tx}, err)
}

// standards are the dialects with the default settings.
var standards = func() map[Dialect]*standard {
	all := make(map[Dialect]*standard)
	for _, d := range []Dialect{Postgres, MySQL, SQLite} {
		e, s, err := configure(d, nil)
		if err == nil {
			all[d] = &standard{e, s}
		}
	}
	return all
}()

type standard struct {
	engine engine
	settings
}

// Enter is [Enter] with the settings of the guard. It uses no connection but that
// of tx, so the pool may have only one.
func (g *Guard) Enter(ctx context.Context, tx Tx, fences ...guard.Fence) error {
	if tx == nil {
		return errNilTx
	}
	return enter(ctx, g.engine, &g.settings, g.session(tx), fences, entering{first: isFresh(tx)})
}

var errNilTx = errors.New("sqlguard: enter: the transaction is nil; nothing was sent")

// isFresh reports whether a transaction says of itself that it has run no statement yet,
// as that of a plugin can.
func isFresh(tx Tx) bool {
	f, ok := tx.(interface{ Fresh() bool })
	return ok && f.Fresh()
}

// enter enters held, or the fences of ctx if there are none, and tells the
// observer of a refusal.
func enter(ctx context.Context, e engine, s *settings, tx session, held []guard.Fence, how entering) error {
	if len(held) == 0 {
		var err error
		if held, err = fences(ctx, "enter"); err != nil {
			s.observer.Refused(ctx, err)
			return err
		}
	} else if err := valid(held); err != nil {
		return err
	}
	err := e.enter(within(ctx), tx, s, held, how)
	if err == nil {
		return nil
	}
	if isRefusal(err) {
		s.observer.Refused(ctx, err)
		return err
	}
	if isBlocked(err) {
		return err
	}
	return fmt.Errorf("sqlguard: enter: %w", because(ctx, s.missing(err)))
}

// inOrder returns the fences in the order in which every transaction enters them,
// so that two never wait for each other crosswise.
func inOrder(held []guard.Fence) []guard.Fence {
	if len(held) < 2 {
		return held
	}
	held = slices.Clone(held)
	slices.SortFunc(held, func(a, b guard.Fence) int { return strings.Compare(a.Resource, b.Resource) })
	return held
}

// fences returns the fences of ctx, all of them valid and at least one.
func fences(ctx context.Context, what string) ([]guard.Fence, error) {
	held := guard.Fences(ctx)
	if len(held) == 0 {
		return nil, fmt.Errorf("sqlguard: %s: %w in the context; acquire a lease and use its context; nothing was sent", what, guard.ErrNoFence)
	}
	return held, valid(held)
}

func valid(held []guard.Fence) error {
	for _, f := range held {
		if err := f.Validate(); err != nil {
			return err
		}
	}
	return nil
}
