package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// A hold is one lock that this process has, shared by the leases that re-entered
// it. The fields below fence are guarded by the keeper's mutex.
type hold struct {
	alarm
	locker  *Locker
	request Request
	member  string      // set if the lock was joined and not acquired
	release callContext // of the call that frees the lock
	fence   guard.Fence // complete before the first lease sees the hold

	deadline time.Time // send time of the last successful call + TTL - margin, or less
	end      time.Time // no renewal moves the deadline past it; zero without WithMaxHold
	renewAt  time.Time // zero if the hold is not to be renewed any more
	lost     error     // a *LostError once lost
	leases   []*Lease
	single   [1]*Lease // room for one, as there mostly is
	renewing bool      // a renewal is queued or under way
	left     bool      // by the last lease, which frees the lock
	listens  bool      // a release may grant it to the one who asks, see Granter; never changes

	failure   error                   // of the last renewal
	stopRaise context.CancelCauseFunc // ends the raise that is under way, if any
}

func (l *Locker) newHold(r Request, token guard.Token, member string) *hold {
	f := guard.Fence{Resource: r.Resource, Token: token, Nonce: r.Nonce, Holder: r.Holder}
	h := &hold{locker: l, request: r, fence: f, member: member}
	h.alarm = alarm{index: -1, hold: h}
	h.leases = h.single[:0]
	return h
}

// next is when the keeper has to look at the hold again.
func (h *hold) next() time.Time {
	if h.renewing || h.renewAt.IsZero() || h.renewAt.After(h.deadline) {
		return h.deadline
	}
	return h.renewAt
}

// prolong moves the deadline after a successful call, sent at sent, by which the lock
// lives until then.
func (h *hold) prolong(sent, until time.Time) {
	d := until.Add(-margin(until.Sub(sent)))
	if !h.end.IsZero() && d.After(h.end) {
		d, h.renewAt = h.end, time.Time{}
	}
	if d.After(h.deadline) {
		h.deadline = d
	}
}

// expiry returns why the hold is lost at its deadline.
func (h *hold) expiry() error {
	switch {
	case h.deadline.Equal(h.end):
		return errMaxHold
	case h.failure != nil:
		return fmt.Errorf("%w: %w", errDeadline, h.failure)
	case h.renewAt.IsZero():
		return errNotRenewed
	default:
		return errDeadline
	}
}

// over returns why h is held no longer, nil if it is. When its deadline has passed it is
// over even if the keeper is late to say so.
func (h *hold) over() error {
	switch {
	case h.lost != nil:
		return h.lost
	case h.index < 0:
		return ErrReleased
	case !time.Now().Before(h.deadline):
		return &LostError{Fence: h.fence, Cause: h.expiry()}
	}
	return nil
}

// tooSlow returns whether a hold that ended before it was a lease, as over says, went to
// nobody.
func tooSlow(over error) bool { return errors.Is(over, errMaxHold) || errors.Is(over, errNotRenewed) }
