package locktest_test

import (
	"context"
	"sync"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// A lab is a second back end in memory, small enough that each of its rules can be
// broken. Without a flaw it is a right one.
type lab struct {
	flaw
	mu    sync.Mutex
	last  map[string]guard.Token
	locks map[string]grant
	asked map[string]bool // for a release, by nonce, in vain
}

// A grant is a lock while it is held.
type grant struct {
	nonce, holder string
	token         guard.Token
	expires       time.Time
}

// A flaw says what is wrong with a back end.
type flaw struct {
	same func(a, b string) bool // compares nonces
	name func(resource string) string
	next func(last, after guard.Token) guard.Token
	ttl  func(time.Duration) time.Duration
	held func(*lock.HeldError) error

	valid             func(lock.Request) error // says what is wrong with a request
	validOwner        func(lock.Request) error // ... with that of a release
	refusesLate       bool                     // a bad request, when it has granted it
	refusalLoses      bool                     // the lock that a bad renewal is of
	checksThenSets    bool                     // others come between the look at the lock and its grant
	refusesARepeat    bool                     // an Acquire whose reply was lost is held up by its own lock
	renumbersARepeat  bool                     // ... or gets another token
	repeatsAnyToken   bool                     // ... or the same one, although the store is past it
	releaseRestarts   bool                     // the counter goes with the lock
	expiryRestarts    bool
	releasesForAnyone bool
	releaseSaysYes    bool // whatever it came to
	repeatSaysYes     bool // ... if it comes again
	releaseDoesNot    bool // free the lock
	renewCreates      bool
	renewsForAnyone   bool
	renewDoesNot      bool // prolong the lock
	ignoresDead       bool // contexts
	deadIsHeld        bool
}

func newLab(f flaw) *lab {
	if f.same == nil {
		f.same = func(a, b string) bool { return a == b }
	}
	if f.name == nil {
		f.name = func(resource string) string { return resource }
	}
	if f.next == nil {
		f.next = func(last, after guard.Token) guard.Token { return max(last, after) + 1 }
	}
	if f.ttl == nil {
		f.ttl = func(d time.Duration) time.Duration { return d }
	}
	if f.held == nil {
		f.held = func(e *lock.HeldError) error { return e }
	}
	if f.valid == nil {
		f.valid = lock.Request.Validate
	}
	if f.validOwner == nil {
		f.validOwner = lock.Request.ValidateOwner
	}
	return &lab{flaw: f, last: make(map[string]guard.Token), locks: make(map[string]grant), asked: make(map[string]bool)}
}

func (l *lab) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	err := l.valid(r)
	if err != nil && !l.refusesLate {
		return 0, err
	}
	if err := l.dead(ctx, r); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.name(r.Resource)
	g, held := l.live(name)
	if held && (l.refusesARepeat || !l.same(g.nonce, r.Nonce)) {
		return 0, l.held(&lock.HeldError{Resource: r.Resource, Holder: g.holder, Remaining: time.Until(g.expires)})
	}
	if l.checksThenSets {
		l.mu.Unlock()
		time.Sleep(time.Microsecond)
		l.mu.Lock()
	}
	if !held || l.renumbersARepeat || g.token <= r.After && !l.repeatsAnyToken {
		l.last[name] = l.next(l.last[name], r.After)
		g = grant{nonce: r.Nonce, holder: r.Holder, token: l.last[name]}
	}
	g.expires = time.Now().Add(l.ttl(r.TTL))
	l.locks[name] = g
	return g.token, err
}

func (l *lab) Renew(ctx context.Context, r lock.Request) error {
	if err := l.valid(r); err != nil {
		if l.refusalLoses {
			delete(l.locks, l.name(r.Resource))
		}
		return err
	}
	if err := l.dead(ctx, r); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.name(r.Resource)
	g, held := l.live(name)
	switch {
	case !held && l.renewCreates:
		g = grant{nonce: r.Nonce, holder: r.Holder, token: l.last[name]}
	case !held, !l.renewsForAnyone && !l.same(g.nonce, r.Nonce):
		return lock.ErrLost
	}
	if !l.renewDoesNot {
		g.expires = time.Now().Add(l.ttl(r.TTL))
	}
	l.locks[name] = g
	return nil
}

func (l *lab) Release(ctx context.Context, r lock.Request) error {
	if err := l.validOwner(r); err != nil {
		return err
	}
	if err := l.dead(ctx, r); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.name(r.Resource)
	g, held := l.live(name)
	switch {
	case !held || !l.releasesForAnyone && !l.same(g.nonce, r.Nonce):
		again := l.asked[r.Nonce]
		l.asked[r.Nonce] = true
		if l.releaseSaysYes || again && l.repeatSaysYes {
			return nil
		}
		return lock.ErrLost
	case l.releaseDoesNot:
		return nil
	}
	delete(l.locks, name)
	if l.releaseRestarts {
		delete(l.last, name)
	}
	return nil
}

// live returns the lock of a name if it has not expired.
func (l *lab) live(name string) (g grant, held bool) {
	g, held = l.locks[name]
	if !held || time.Now().Before(g.expires) {
		return g, held
	}
	delete(l.locks, name)
	if l.expiryRestarts {
		delete(l.last, name)
	}
	return grant{}, false
}

func (l *lab) dead(ctx context.Context, r lock.Request) error {
	err := ctx.Err()
	switch {
	case err == nil, l.ignoresDead:
		return nil
	case l.deadIsHeld:
		return &lock.HeldError{Resource: r.Resource}
	}
	return err
}
