package zklock

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/go-zookeeper/zk"
)

// clear has whatever exists of a hold that has ended deleted in the background. One
// goroutine does it for all: in an outage each would keep calls in the client's queue,
// and the renewals stand behind them.
func (b *Backend) clear(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closing:
	case !h.exists(b.session.conn.SessionID()):
		b.unlist(h)
	default:
		b.leftovers[h] = true
		if !b.sweeping {
			b.sweeping = true
			b.background.Go(b.sweep)
		}
	}
}

// exists reports whether there may be a node of h. Those that this session has not
// created are none of ours, or have ended with theirs. It needs the mutex.
func (h *hold) exists(session int64) bool {
	return h.creating > 0 || (h.name != "" || h.unsure) && h.session != 0 && h.session == session
}

// outlived reports whether the session that created the node of h has ended.
func (b *Backend) outlived(h *hold) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return h.session != 0 && h.session != b.session.conn.SessionID()
}

// sweep goes on until ZooKeeper has deleted all leftovers, or the end of the session has.
func (b *Backend) sweep() {
	for wait := tryPause; ; {
		left := b.left()
		if len(left) == 0 {
			return
		}
		if b.deleteAll(left) {
			wait = tryPause
			continue
		}
		if !b.session.pause(context.Background(), wait) {
			return
		}
		wait = min(2*wait, answerWait)
	}
}

// left returns the holds that are to be cleared. If there are none the sweep is over.
func (b *Backend) left() []*hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	session := b.session.conn.SessionID()
	for h := range b.leftovers {
		if !h.exists(session) {
			b.unlist(h)
		}
	}
	b.sweeping = len(b.leftovers) > 0
	return slices.Collect(maps.Keys(b.leftovers))
}

// deleteAll returns false if it has not deleted all of them. One that is refused holds up
// no other; where nobody answers there is no use in more calls.
func (b *Backend) deleteAll(left []*hold) bool {
	all := true
	for _, h := range left {
		ctx, cancel, err := b.session.bound(context.Background())
		if err == nil {
			_, err = b.delete(ctx, h)
			cancel()
		}
		switch {
		case err == nil:
			b.forget(h)
		case interrupted(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errClosed):
			return false
		default:
			all = false
		}
	}
	return all
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
		deleted, err := b.deleteNode(ctx, h, name)
		if err != nil {
			return existed, err
		}
		existed = existed || deleted
	}
	return existed, nil
}

// deleteNode reports whether the node existed. What is deleted by a try whose reply was
// lost is found missing by the next one; but after the end of its session it is taken for
// lost.
func (b *Backend) deleteNode(ctx context.Context, h *hold, name string) (existed bool, err error) {
	tries := 0
	_, err = try(ctx, b.session, func(c *zk.Conn) (struct{}, error) {
		tries++
		return struct{}{}, c.Delete(h.dir+"/"+name, -1)
	})
	if errors.Is(err, zk.ErrNoNode) {
		return tries > 1 && !b.outlived(h), nil
	}
	return err == nil, err
}
