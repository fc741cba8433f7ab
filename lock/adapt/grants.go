package adapt

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-fencing/fencing/lock"
)

// A grant is what this process knows of one nonce: its mutex, which may have state
// that no other has, and until when it has the lock.
type grant struct {
	resource, nonce string
	turn            chan struct{} // whoever is in it has mutex and ttl
	mutex           Mutex
	ttl             time.Duration

	// Guarded by the mutex of grants.
	holder  string
	expires time.Time // when the lock ends, or at first when an unknown grant would
	held    bool
}

// use makes one call at a time: a *redsync.Mutex is not made for two. One that
// hangs holds up the next one only until the end of that one's ctx.
func (g *grant) use(ctx context.Context, call func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.turn }()
	return call()
}

// grants has those of every resource.
type grants struct {
	mu    sync.Mutex
	of    map[string][]*grant
	sweep int // the number of resources at which expired grants are looked for
}

// open returns the grant of r, and whether there was one already.
func (s *grants) open(r lock.Request) (g *grant, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.of[r.Resource] {
		if g.nonce == r.Nonce {
			return g, true
		}
	}
	s.forget()
	g = &grant{resource: r.Resource, nonce: r.Nonce, turn: make(chan struct{}, 1), expires: time.Now().Add(r.TTL)}
	s.of[r.Resource] = append(s.of[r.Resource], g)
	return g, false
}

// close forgets g. A call of its nonce that comes later gets a mutex of its own.
func (s *grants) close(g *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := slices.DeleteFunc(s.of[g.resource], func(other *grant) bool { return other == g })
	if s.of[g.resource] = rest; len(rest) == 0 {
		delete(s.of, g.resource)
	}
}

// forget drops the grants that nobody released and that have expired, whenever
// there are twice as many resources as after the last time.
func (s *grants) forget() {
	if len(s.of) < s.sweep {
		return
	}
	now := time.Now()
	for resource, all := range s.of {
		rest := slices.DeleteFunc(all, func(g *grant) bool { return g.expires.Before(now) })
		if s.of[resource] = rest; len(rest) == 0 {
			delete(s.of, resource)
		}
	}
	s.sweep = max(64, 2*len(s.of))
}

// prolong notes that r was granted or renewed by a call that was sent at sent.
func (s *grants) prolong(g *grant, r lock.Request, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.held, g.holder, g.expires = true, r.Holder, sent.Add(r.TTL)
}

// holder describes who has the lock of resource, as far as this process knows.
func (s *grants) holder(resource string) *lock.HeldError {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.of[resource] {
		if left := time.Until(g.expires); g.held && left > 0 {
			return &lock.HeldError{Resource: resource, Holder: g.holder, Remaining: left}
		}
	}
	return &lock.HeldError{Resource: resource}
}
