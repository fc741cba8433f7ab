package adapt_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-fencing/fencing/lock/adapt"
)

var errTaken = errors.New("peer: taken")

// A peer stands for another library on its server: SET NX with an expiry, compare
// and delete. Like redsync it deletes its value again after a try that failed.
type peer struct {
	mu    sync.Mutex
	locks map[string]locked

	// Hooks of the tests, called with the mutex of one call: before it has an
	// effect, and after it.
	before, after func(call string) error
}

type locked struct {
	value   string
	expires time.Time
}

func newPeer() *peer { return &peer{locks: make(map[string]locked)} }

// mutex is the function for adapt.New.
func (p *peer) mutex(resource, nonce string, ttl time.Duration) adapt.Mutex {
	return &peerMutex{peer: p, resource: resource, value: nonce, ttl: ttl}
}

func refused(err error) bool { return errors.Is(err, errTaken) }

type peerMutex struct {
	peer            *peer
	resource, value string
	ttl             time.Duration
	calls           int // without a lock: the race detector sees two calls at once
}

func (m *peerMutex) TryLockContext(ctx context.Context) error {
	return m.call(ctx, "lock", func(own, free bool) error {
		if free {
			m.peer.locks[m.resource] = locked{m.value, time.Now().Add(m.ttl)}
			return nil
		}
		if own {
			delete(m.peer.locks, m.resource)
		}
		return errTaken
	})
}

func (m *peerMutex) ExtendContext(ctx context.Context) (bool, error) {
	err := m.call(ctx, "extend", func(own, _ bool) error {
		if !own {
			return errTaken
		}
		m.peer.locks[m.resource] = locked{m.value, time.Now().Add(m.ttl)}
		return nil
	})
	return err == nil, err
}

func (m *peerMutex) UnlockContext(ctx context.Context) (bool, error) {
	err := m.call(ctx, "unlock", func(own, _ bool) error {
		if !own {
			return errTaken
		}
		delete(m.peer.locks, m.resource)
		return nil
	})
	return err == nil, err
}

func (m *peerMutex) call(ctx context.Context, name string, effect func(own, free bool) error) error {
	m.calls++
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.peer.before != nil {
		if err := m.peer.before(name); err != nil {
			return err
		}
	}
	m.peer.mu.Lock()
	defer m.peer.mu.Unlock()
	l := m.peer.locks[m.resource]
	live := time.Now().Before(l.expires)
	err := effect(live && l.value == m.value, !live)
	if err == nil && m.peer.after != nil {
		return m.peer.after(name)
	}
	return err
}

// free reports whether nobody has the lock.
func (p *peer) free(resource string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !time.Now().Before(p.locks[resource].expires)
}

// take locks without any of this module.
func (p *peer) take(resource, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.locks[resource] = locked{value, time.Now().Add(time.Hour)}
}

// drop frees a lock, whoever has it.
func (p *peer) drop(resource string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.locks, resource)
}
