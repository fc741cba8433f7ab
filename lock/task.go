package lock

import (
	"context"
	"errors"
	"fmt"
)

// A task is one call to the back end.
type task interface {
	call(ctx context.Context) error
	ended(outlived bool) // runs once call has; outlived: attempt returned before
}

// A simpleTask has nothing to do at its end.
type simpleTask func(ctx context.Context) error

func (t simpleTask) call(ctx context.Context) error { return t(ctx) }

func (simpleTask) ended(bool) {}

// Acquiring is the task of asking for the lock of a hold, whose token it sets. A
// reply that is lost may have been a grant: whatever is not a clear answer is undone
// in the background.
type acquiring struct{ *hold }

func (h acquiring) call(ctx context.Context) (err error) {
	h.fence.Token, err = h.locker.send(ctx, h.hold)
	if err == nil && h.fence.Token <= 0 && h.locker.sequencer == nil {
		err = fmt.Errorf("%T has no tokens of its own; give lock.New a sequencer with lock.WithSequencer", h.locker.backend)
	}
	if err != nil && !errors.Is(err, ErrHeld) {
		h.locker.undo(h.hold)
	}
	return err
}

func (h acquiring) ended(outlived bool) { h.locker.settled(h.hold, outlived) }

// Joining is the task of becoming a member of a lock.
type joining struct{ *hold }

func (h joining) call(ctx context.Context) error {
	return h.locker.backend.(Joiner).Join(ctx, h.request, h.member)
}

func (h joining) ended(outlived bool) { h.locker.settled(h.hold, outlived) }

// settled is the end of a task that may have left a lock which nobody wants.
func (l *Locker) settled(h *hold, outlived bool) {
	if outlived {
		l.undo(h)
	}
	l.running.Done()
}

// Releasing is the task of freeing a lock, or of leaving one that others share.
type releasing struct{ *hold }

func (h releasing) call(ctx context.Context) error {
	if h.member != "" {
		return h.locker.backend.(Joiner).Leave(ctx, h.request, h.member)
	}
	return h.locker.backend.Release(ctx, h.request)
}

func (releasing) ended(bool) {}

// Renewing is the task of renewing locks, of which each has an outcome of its own.
type renewing struct {
	keeper   *keeper
	requests []Request
	answers  []error // of the call, which may come after its end
	outcomes []error // the answers, if they came before; nil if not
}

// call returns an error if it is one that leaves open whether the back end is there.
func (t *renewing) call(ctx context.Context) error {
	t.answers = t.keeper.send(ctx, t.requests)
	for _, err := range t.answers {
		if err != nil && !errors.Is(err, ErrLost) {
			return err
		}
	}
	return nil
}

func (t *renewing) ended(outlived bool) {
	if !outlived {
		t.outcomes = t.answers
	}
}
