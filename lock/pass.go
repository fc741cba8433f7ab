package lock

import (
	"context"
	"errors"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// A pass hands the lock of a hold whose last lease is released to the waiter at the
// front of the line. It is the task of that call. The waiter neither asks by itself nor
// gives its place away meanwhile, unless it stops waiting: then it disowns the pass, and
// whatever the call still gets is given back.
type pass struct {
	from, to *hold
	place    *place // of the waiter
	sent     time.Time
	err      error // of the call

	// Guarded by the mutex of the lines.
	told   bool  // the outcome is known, and the waiter has been told to look
	failed error // why nobody knows whether the lock was passed, or why it was not there
}

// passing returns the pass of h to the waiter at the front, which is committed to it;
// nil if there is none, or it asks by itself.
func (l *Locker) passing(h *hold, sent time.Time) *pass {
	if l.passer == nil || h.member != "" {
		return nil
	}
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	q := l.lines.of[h.request.Resource]
	if q == nil || l.isClosed() {
		return nil
	}
	first := q.first()
	if first.asking || first.pass != nil {
		return nil
	}
	l.running.Add(1) // for the call; Close cannot be through, since the waiter counts too
	first.pass = &pass{from: h, to: l.newHold(first.request, 0, ""), place: first, sent: sent}
	return first.pass
}

// free releases the lock of h, or passes it on.
func (l *Locker) free(ctx context.Context, h *hold, sent, end time.Time) error {
	p := l.passing(h, sent)
	if p == nil {
		return l.keeper.attempt(ctx, end, errNoAnswer, releasing{h}, &h.release)
	}
	err := l.keeper.attempt(ctx, end, errNoAnswer, p, &h.release)
	p.tell(err) // if the call goes on without an answer
	return err
}

func (p *pass) call(ctx context.Context) error {
	l := p.from.locker
	var token guard.Token
	switch token, p.err = l.passer.Pass(ctx, p.from.request, p.to.request); {
	case p.err == nil:
		p.to.fence.Token = token
	case !errors.Is(p.err, ErrLost):
		l.detach(func(ctx context.Context) (err error) {
			for _, r := range []Request{p.from.request, p.to.request} { // in the order that Passer asks for
				if failed := l.backend.Release(ctx, r); failed != nil && !errors.Is(failed, ErrLost) {
					err = failed
				}
			}
			return err
		})
	}
	return p.err
}

func (p *pass) ended(bool) {
	l := p.from.locker
	if !p.tell(p.err) && (p.err == nil || errors.Is(p.err, ErrLost)) { // it may also be noted as one that waits
		l.undo(p.to)
	}
	l.running.Done()
}

// tell lets the waiter know the outcome. It returns false if the waiter does not count
// on the pass any more, or knows already.
func (p *pass) tell(err error) bool {
	l := p.from.locker
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	if p.told || p.place.pass != p {
		return false
	}
	p.told, p.failed = true, err
	p.place.tell()
	return true
}

// granted reports whether the waiter was told that it has the lock. The caller has the
// mutex of the lines, also for disown and settle.
func (p *pass) granted() bool { return p.told && p.failed == nil && p.to.fence.Token > 0 }

// disown gives up the pass for its waiter.
func (p *pass) disown() {
	p.place.pass = nil
	if p.granted() {
		p.from.locker.undo(p.to)
	}
}

// settle ends the pass to w once its outcome is known, or a TTL is over, after which a
// grant is worthless. passed is set if w has the lock, ask if it is to ask at once.
func (w *waiter) settle(now time.Time) (ask bool, passed *pass) {
	p := w.place.pass
	late := now.Sub(p.sent) >= w.locker.ttl
	switch {
	case p.granted() && !late:
		w.place.pass, w.place.asking = nil, true
		return false, p
	case !p.told && !late:
		return false, nil
	case p.told && p.failed == nil && !p.granted():
		w.place.pass = nil
		return true, nil // to be noted: another process may have been granted the lock, which wakes nobody here
	}
	p.disown()
	if errors.Is(p.failed, ErrLost) { // or it is undone
		w.withdraw()
	}
	w.id = "" // spent
	w.refusals++
	w.answered = now // the lock was held until now: this may be a failover
	return true, nil
}
