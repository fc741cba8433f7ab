package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// maxRepairs is how many greater tokens one acquisition asks for when a store is
// ahead of the sequencer. One is enough after a sequencer has forgotten; more
// means that somebody else keeps raising.
const maxRepairs = 3

// secure turns a granted lock into one whose fence is in force in every store, or
// returns why it could not; errSuperseded if the lock was lost meanwhile, errTooSlow if that
// was because of the time that it took.
func (l *Locker) secure(ctx context.Context, h *hold) error {
	if len(l.guards) == 0 && l.sequencer == nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if over := l.keeper.raising(h, cancel); over != nil {
		return whileRaised(over, nil)
	}
	fence, err := l.issue(ctx, h)
	if err == nil {
		err = l.raise(ctx, h, fence)
	}
	if over := l.keeper.raising(h, nil); over != nil {
		return whileRaised(over, err)
	}
	return err
}

// whileRaised returns what becomes of an acquisition whose hold was over in the middle of
// the raise, which itself has ended with err.
func whileRaised(over, err error) error {
	switch {
	case !tooSlow(over):
		return errSuperseded
	case err == nil:
		return fmt.Errorf("%w: %w", errTooSlow, over)
	}
	return fmt.Errorf("%w: %w: %w", errTooSlow, over, err) // which may say what the store waits for
}

// issue draws the token of a lock that has none of its own from the sequencer.
func (l *Locker) issue(ctx context.Context, h *hold) (guard.Fence, error) {
	if l.sequencer == nil {
		return h.fence, nil
	}
	return l.draw(ctx, h, 0)
}

// raise makes the fence of h the current one in every store. A store that is
// ahead of the sequencer refuses it: then the sequencer has forgotten, and is
// taken past the store's token.
func (l *Locker) raise(ctx context.Context, h *hold, f guard.Fence) error {
	for repairs := 0; ; repairs++ {
		err := l.raiseAll(ctx, f)
		if err == nil {
			l.keeper.mu.Lock()
			h.fence = f
			l.keeper.mu.Unlock()
			return nil
		}
		if !errors.Is(err, guard.ErrStale) {
			return err
		}
		if repairs == maxRepairs {
			return fmt.Errorf("the store refused %d tokens, somebody else keeps raising: %w", repairs+1, err)
		}
		after := f.Token
		if stale, ok := errors.AsType[*guard.StaleError](err); ok {
			if after > stale.Current.Token && stale.Current.Token > 0 {
				return fmt.Errorf("the store has given up tokens as great as %d, and the lock's counter is still there; an operator must run \"fencectl rebase\" with that too: %w", after, err)
			}
			after = max(after, stale.Current.Token)
		}
		if f, err = l.draw(ctx, h, after); err != nil {
			return err
		}
		l.observer.Observe(guard.Event{Kind: guard.EventRepaired, Context: ctx, Fence: f})
	}
}

func (l *Locker) raiseAll(ctx context.Context, f guard.Fence) error {
	toGuards := ctx
	if l.observer != nil {
		toGuards = guard.Observed(ctx)
	}
	for _, g := range l.guards {
		begun := time.Now()
		err := g.Raise(toGuards, f)
		l.observer.Raised(ctx, f, time.Since(begun), err)
		if err != nil {
			return err
		}
	}
	return nil
}

// draw returns the fence of h with a token greater than after.
func (l *Locker) draw(ctx context.Context, h *hold, after guard.Token) (guard.Fence, error) {
	r, f := h.request, h.fence
	var err error
	if l.sequencer == nil {
		r.After = after
		again, err := l.call(ctx, r, false, time.Now())
		switch {
		case errors.Is(err, ErrHeld):
			return f, fmt.Errorf("%w: %w", errSuperseded, err)
		case err != nil:
			return f, err
		}
		return again.fence, nil
	}
	if f.Token, err = l.sequencer.Next(ctx, r.Resource, after); err != nil {
		return f, err
	}
	// Only now is it sure that no other holder drew a token between ours and the
	// grant: a lock that is still held was held all along.
	err = l.keeper.attempt(ctx, time.Now().Add(l.ttl), l.noAnswer, simpleTask(func(ctx context.Context) error { return l.backend.Renew(ctx, r) }), new(callContext))
	if errors.Is(err, ErrLost) {
		err = errSuperseded
	}
	return f, err
}
