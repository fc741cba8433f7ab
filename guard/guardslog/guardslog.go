// Package guardslog writes what happens to fences to a log/slog logger.
package guardslog

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/go-fencing/fencing/guard"
)

// New returns an observer that logs every event with l, or with slog.Default if l
// is nil. Give it to the locker and to the guards; it is safe for concurrent use.
//
//   - debug: acquired, raised, renewed, committed, released;
//   - info: waited;
//   - warn: refused, repaired, unguarded, lost, and what failed.
//
// The message is "fence" and the kind; the attributes are resource, token, holder,
// took, remaining and error, where they apply. The context is the event's, so that
// a handler finds the trace. A nonce is never logged: whoever knows it can release
// the lock or enter as its holder. For that reason the error is logged as text.
func New(l *slog.Logger) guard.Observer {
	l = cmp.Or(l, slog.Default())
	return func(e guard.Event) {
		level := levelOf(&e)
		if l.Enabled(e.Context, level) {
			log(e.Context, l, level, &e)
		}
	}
}

func levelOf(e *guard.Event) slog.Level {
	if e.Kind == guard.EventAcquired && e.Err != nil { // mostly it is held, as TryAcquire is there to find out
		return slog.LevelInfo
	}
	switch e.Kind {
	case guard.EventRefused, guard.EventRepaired, guard.EventUnguarded, guard.EventLost:
		return slog.LevelWarn
	case guard.EventWaited:
		return slog.LevelInfo
	}
	if e.Err != nil {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func log(ctx context.Context, l *slog.Logger, level slog.Level, e *guard.Event) {
	attrs := make([]slog.Attr, 0, 6)
	if e.Fence.Resource != "" {
		attrs = append(attrs, slog.String("resource", e.Fence.Resource))
	}
	if e.Fence.Token != 0 {
		attrs = append(attrs, slog.Int64("token", int64(e.Fence.Token)))
	}
	if e.Fence.Holder != "" {
		attrs = append(attrs, slog.String("holder", e.Fence.Holder))
	}
	if e.Took != 0 {
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	if e.Kind == guard.EventCommitted || e.Kind == guard.EventReleased {
		attrs = append(attrs, slog.Duration("remaining", e.Remaining))
	}
	if e.Err != nil {
		// Not the error itself: a handler that looks into it finds the fences of a
		// *guard.StaleError, nonces included.
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	l.LogAttrs(ctx, level, "fence "+e.Kind.String(), attrs...)
}
