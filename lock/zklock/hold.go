package zklock

import (
	"context"
	"errors"
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
	if b.nothing(h) {
		b.forget(h)
	}
}

func (b *Backend) nothing(h *hold) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return h.name == "" && !h.unsure && h.creating == 0
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

// clear deletes, in the background, whatever exists of a hold that has ended. It goes on
// until ZooKeeper says so, or the end of the session does the same.
func (b *Backend) clear(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return
	}
	b.background.Go(func() {
		for wait := tryPause; ; wait = min(2*wait, giveUp) {
			ctx, cancel, err := b.session.bound(context.Background())
			if err == nil {
				_, err = b.delete(ctx, h)
				cancel()
			}
			if err == nil {
				b.forget(h)
				return
			}
			if !b.session.pause(context.Background(), wait) {
				return
			}
		}
	})
}

// delete deletes the node of h, or all that have its mark if that is not known for sure,
// and reports whether there was any. Its names are nobody else's.
func (b *Backend) delete(ctx context.Context, h *hold) (existed bool, err error) {
	b.mu.Lock()
	name, sure := h.name, h.name != "" && !h.unsure
	b.mu.Unlock()
	names := []string{name}
	if !sure {
		q, err := b.list(ctx, h.dir, true)
		if err != nil {
			return false, err
		}
		names = nil
		for _, n := range q.of(h.mark) {
			names = append(names, n.name)
		}
	}
	for _, name := range names {
		deleted, err := b.deleteNode(ctx, h.dir+"/"+name)
		if err != nil {
			return existed, err
		}
		existed = existed || deleted
	}
	return existed, nil
}

// deleteNode reports whether the node existed. What is deleted by a try whose reply was
// lost is found missing by the next one.
func (b *Backend) deleteNode(ctx context.Context, path string) (existed bool, err error) {
	tries := 0
	_, err = try(ctx, b.session, func(c *zk.Conn) (struct{}, error) {
		tries++
		return struct{}{}, c.Delete(path, -1)
	})
	if errors.Is(err, zk.ErrNoNode) {
		return tries > 1, nil
	}
	return err == nil, err
}
