package zklock

import (
	"context"
	"path"
	"time"

	"github.com/go-zookeeper/zk"
)

// A hold is the node of one nonce, or of one waiter, while this process wants it to
// exist. An ephemeral node lives as long as the session, which goes on while the keeper
// of a lease has given up; so the hold ends it when its time is over. Fields below
// until are guarded by the mutex of the back end.
type hold struct {
	dir, mark string

	until    time.Time // zero: no end of its own
	timer    *time.Timer
	name     string // of the node, "" until it is known
	granted  bool   // it was the first
	ended    bool   // it is to exist no more
	released bool   // by a call
	creating int    // creations under way
	unsure   bool   // a creation was not answered
	session  int64  // of the last creation, 0 if there was none in any
}

// hold returns that of a mark, new if there is none, and whether it was released. Its
// time does not run out while the call that asks for it is under way.
func (b *Backend) hold(dir, mark string) (h *hold, released bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h = b.holds[dir+"/"+mark]
	if h == nil {
		h = &hold{dir: dir, mark: mark}
		b.holds[dir+"/"+mark] = h
	}
	if !h.ended && !h.granted && h.timer != nil {
		h.until = time.Time{}
		h.timer.Stop()
	}
	return h, h.released
}

// rest gives what a call leaves of a hold that was not granted some time to live.
func (b *Backend) rest(h *hold, life time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !h.ended && !h.granted {
		b.extend(h, life)
	}
}

func (b *Backend) over(h *hold) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return h.ended
}

// node returns the name of the node of h, and whether there may be another.
func (b *Backend) node(h *hold) (name string, unsure bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return h.name, h.unsure
}

// found notes the nodes of h, of which the first counts.
func (b *Backend) found(h *hold, mine []node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.name, h.unsure = mine[0].name, h.unsure || len(mine) > 1
}

// drop forgets a hold for which nothing was done. What may exist ends in its time, or
// when it is released.
func (b *Backend) drop(h *hold) {
	b.mu.Lock()
	nothing := h.name == "" && !h.unsure && h.creating == 0
	b.mu.Unlock()
	if nothing {
		b.forget(h)
	}
}

// known returns the hold of a mark, nil if there is none.
func (b *Backend) known(dir, mark string) *hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.holds[dir+"/"+mark]
}

// extend needs the mutex.
func (b *Backend) extend(h *hold, life time.Duration) {
	h.until = time.Now().Add(life)
	if h.timer == nil {
		h.timer = time.AfterFunc(life, func() { b.expire(h) })
		return
	}
	h.timer.Reset(life)
}

// prolong gives a hold another span of life unless it has ended meanwhile.
func (b *Backend) prolong(h *hold, life time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.ended {
		return false
	}
	h.granted = true
	b.extend(h, life)
	return true
}

// expire ends a hold that nobody prolonged.
func (b *Backend) expire(h *hold) {
	b.mu.Lock()
	over := !h.until.IsZero() && !time.Now().Before(h.until) // or it was prolonged while the timer fired
	b.mu.Unlock()
	if over && b.end(h) {
		b.clear(h)
	}
}

// end makes a hold one that ends, and returns true once.
func (b *Backend) end(h *hold) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.ended {
		return false
	}
	h.ended = true
	if h.timer != nil {
		h.timer.Stop()
	}
	return true
}

// releaseHold makes a hold one that ends, whose nonce must not come back. It returns whether
// its time was over already, and whether this repeats a release.
func (b *Backend) releaseHold(h *hold) (late, again bool) {
	first := b.end(h)
	b.mu.Lock()
	defer b.mu.Unlock()
	again = h.released
	h.released = h.released || first
	return !first && !again, again
}

// forget drops a hold whose node is known not to exist.
func (b *Backend) forget(h *hold) {
	b.end(h)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unlist(h)
}

// unlist needs the mutex.
func (b *Backend) unlist(h *hold) {
	delete(b.leftovers, h)
	if h.creating == 0 && b.holds[h.dir+"/"+h.mark] == h {
		delete(b.holds, h.dir+"/"+h.mark)
	}
}

// create makes the node of h. Its outcome is noted also if nobody waits for it any more.
func (b *Backend) create(ctx context.Context, h *hold, data []byte) error {
	b.mu.Lock()
	h.creating++
	b.mu.Unlock()
	_, err := call(ctx, b.session, func(c *zk.Conn) (string, error) {
		created, err := c.Create(h.dir+"/"+h.mark, data, zk.FlagEphemeralSequential, b.config.acl)
		b.created(h, created, err)
		return created, err
	})
	return err
}

func (b *Backend) created(h *hold, created string, err error) {
	b.mu.Lock()
	h.creating--
	h.session = b.session.conn.SessionID() // or it was one before, which has ended
	switch {
	case interrupted(err):
		h.unsure = true
	case err == nil && h.name == "":
		h.name = path.Base(created)
	case err == nil: // the one before it was created after all
		h.unsure = true
	}
	late := h.ended && h.creating == 0
	b.mu.Unlock()
	if late {
		b.clear(h)
	}
}
