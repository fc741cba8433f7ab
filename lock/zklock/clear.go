package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// maxSweepers is how many leftovers are deleted at a time. Not one by one: whoever waits
// behind a node that nobody wants is not woken before it is gone. And not all: in an
// outage each would keep calls in the client's queue, and the renewals stand behind them.
const maxSweepers = 16

// clear has whatever exists of a hold that has ended deleted in the background.
func (b *Backend) clear(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closing:
	case !h.exists(b.session.conn.SessionID()):
		b.unlist(h)
	default:
		if !b.leftovers[h] { // or a sweeper has it
			b.leftovers[h] = false
		}
		if b.sweepers < maxSweepers {
			b.sweepers++
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

// sweep goes on until ZooKeeper has deleted all leftovers that no other sweeper has, or
// the end of the session has.
func (b *Backend) sweep() {
	for wait := tryPause; ; {
		h := b.leftover()
		if h == nil {
			return
		}
		if b.deleteLeftover(h) == nil {
			b.forget(h)
			wait = tryPause
			continue
		}
		if !b.session.pause(context.Background(), wait) {
			return
		}
		b.putBack(h) // only now: one that is refused holds up no other
		wait = min(2*wait, answerWait)
	}
}

// leftover returns a hold that is to be cleared and that no sweeper has. If there is none
// the one who asks has come to its end.
func (b *Backend) leftover() *hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	session := b.session.conn.SessionID()
	for h, taken := range b.leftovers {
		switch {
		case taken:
		case !h.exists(session):
			b.unlist(h)
		default:
			b.leftovers[h] = true
			return h
		}
	}
	b.sweepers--
	return nil
}

func (b *Backend) putBack(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leftovers[h] { // or it has been unlisted
		b.leftovers[h] = false
	}
}

func (b *Backend) deleteLeftover(h *hold) error {
	ctx, cancel, err := b.session.bound(context.Background())
	if err != nil {
		return err
	}
	defer cancel()
	_, err = b.delete(ctx, h)
	return err
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
