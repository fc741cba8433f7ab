package gormguard

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/go-fencing/fencing/guard"
)

type unguardedKey struct{}

// Unguarded returns a session whose writes are not guarded, and why: for a
// migration, or a repair by hand. The observer of the plugin is told of every
// write to a guarded table that is let through so. A trigger of
// migrations.Protect still refuses it. Without a reason every statement of the session is
// an error.
func Unguarded(db *gorm.DB, reason string) *gorm.DB {
	ctx := context.Background()
	if db.Statement != nil && db.Statement.Context != nil {
		ctx = db.Statement.Context
	}
	session := db.WithContext(context.WithValue(ctx, unguardedKey{}, reason))
	if reason == "" {
		_ = session.AddError(errors.New("gormguard: Unguarded: the reason is empty; say why the writes are not guarded; nothing was written"))
	}
	return session
}

// An UnguardedError tells the observer what [Unguarded] let through.
type UnguardedError struct {
	Table  string
	Reason string
}

func (e *UnguardedError) Error() string {
	return fmt.Sprintf("gormguard: unguarded write to %q: %s", e.Table, e.Reason)
}

// unguarded reports whether a write is let through, and tells the observer.
func (p *Plugin) unguarded(ctx context.Context, table string) bool {
	reason, ok := ctx.Value(unguardedKey{}).(string)
	if ok {
		p.observer.Observe(guard.Event{Kind: guard.EventUnguarded, Context: ctx, Err: &UnguardedError{Table: table, Reason: reason}})
	}
	return ok
}
