package guard

import (
	"context"
	"time"
)

type deadlineKey struct{}

// A deadliner is a lease: renewals move its deadline.
type deadliner interface{ Deadline() time.Time }

// WithDeadline returns a context that knows when the lease ends whose work it is
// for. A lease's context is made this way.
func WithDeadline(ctx context.Context, lease interface{ Deadline() time.Time }) context.Context {
	if outer, ok := ctx.Value(deadlineKey{}).(deadliner); ok {
		lease = earlier{lease, outer}
	}
	return context.WithValue(ctx, deadlineKey{}, lease)
}

// Deadline returns when the first of the leases that ctx is under must be presumed
// lost unless it is renewed before, or false if ctx is under none. It is advisory:
// only the store's check is a guard, since any pause can come after a look at the
// clock. A context's own Deadline is another thing: it does not move.
func Deadline(ctx context.Context) (time.Time, bool) {
	lease, ok := ctx.Value(deadlineKey{}).(deadliner)
	if !ok {
		return time.Time{}, false
	}
	return lease.Deadline(), true
}

// earlier is a lease under another one.
type earlier struct{ a, b deadliner }

func (e earlier) Deadline() time.Time {
	a, b := e.a.Deadline(), e.b.Deadline()
	if b.Before(a) {
		return b
	}
	return a
}
