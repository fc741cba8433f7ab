package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

const rounds = 20 // of one acquisition

// errAgain: what was read has changed before it was used.
var errAgain = errors.New("the nodes have changed")

// acquire takes the lock if its node is the first. Otherwise the node goes, or stays in
// the queue for patience if that is not 0.
func (b *Backend) acquire(ctx context.Context, r lock.Request, patience time.Duration) (guard.Token, error) {
	if err := b.validate(r); err != nil {
		return 0, err
	}
	ctx, cancel, err := b.session.bound(ctx)
	if err != nil {
		return 0, err
	}
	defer cancel()
	for range rounds {
		h, spent := b.hold(b.dir(r.Resource), mark(r.Nonce))
		if spent {
			return 0, fmt.Errorf("this nonce was released: %w", lock.ErrLost)
		}
		token, err := b.attempt(ctx, h, r, patience > 0)
		b.rest(h, cmp.Or(patience, r.TTL))
		switch {
		case err == nil, errors.Is(err, lock.ErrHeld):
			return token, err
		case errors.Is(err, errAgain):
			continue
		case !interrupted(err) || !b.session.pause(ctx, tryPause):
			b.drop(h)
			return 0, b.session.over(ctx, err)
		}
	}
	return 0, &lock.HeldError{Resource: r.Resource} // by others in turn, each time that it was looked at
}

func (b *Backend) attempt(ctx context.Context, h *hold, r lock.Request, queues bool) (guard.Token, error) {
	if b.over(h) { // since the last call
		return 0, b.remove(ctx, h)
	}
	name, _ := b.node(h)
	created := false // by this call
	if name == "" {
		var err error
		if created, err = b.place(ctx, h, r, queues); err != nil {
			return 0, err
		}
		name, _ = b.node(h)
	}
	// Both at once; the session answers in order, so that both know of the node's creation.
	type answer struct {
		stat *zk.Stat
		err  error
	}
	own := make(chan answer, 1)
	go func() {
		stat, err := try(ctx, b.session, func(c *zk.Conn) (*zk.Stat, error) {
			exists, stat, err := c.Exists(h.dir + "/" + name)
			if err == nil && !exists {
				err = zk.ErrNoNode
			}
			return stat, err
		})
		own <- answer{stat, err}
	}()
	q, err := b.list(ctx, h.dir, false)
	a := <-own
	mine := q.of(h.mark)
	switch {
	case err != nil:
		return 0, err
	case errors.Is(a.err, zk.ErrNoNode), a.err == nil && len(mine) == 0:
		b.forget(h) // the session has expired, or somebody deleted it
		return 0, errAgain
	case a.err != nil:
		return 0, a.err
	case a.stat.EphemeralOwner != b.session.conn.SessionID():
		// Of a session that has ended, or of another back end's: no renewal of ours would
		// keep it.
		return 0, b.remove(ctx, h)
	case mine[0].name != name: // the first creation was carried out after all
		b.found(h, mine)
		return 0, errAgain
	case q.locks[0].name == name:
		return b.grant(ctx, h, r, q, a.stat.Czxid, created)
	case !queues:
		if err := b.remove(ctx, h); !errors.Is(err, errAgain) {
			return 0, err
		}
	}
	return 0, b.refusal(ctx, h.dir, q, r.Resource)
}

// place finds the node of h, or creates it unless the lock is seen held and it does not
// queue: a refusal writes nothing.
func (b *Backend) place(ctx context.Context, h *hold, r lock.Request, queues bool) (created bool, err error) {
	_, unsure := b.node(h)
	q, err := b.list(ctx, h.dir, unsure)
	if err != nil {
		return false, err
	}
	if err := b.covers(r.TTL); err != nil {
		return false, err
	}
	if mine := q.of(h.mark); len(mine) > 0 {
		b.found(h, mine)
		return false, nil
	}
	if !queues && len(q.locks) > 0 {
		err := b.refusal(ctx, h.dir, q, r.Resource)
		if errors.Is(err, lock.ErrHeld) {
			b.forget(h)
		}
		return false, err
	}
	err = b.createIn(ctx, h, encode(r), q.missing)
	return err == nil, err
}

// createIn creates the node of h, and what it is in.
func (b *Backend) createIn(ctx context.Context, h *hold, data []byte, missing bool) error {
	if missing {
		if err := b.make(ctx, h.dir, true); err != nil {
			return err
		}
	}
	err := b.create(ctx, h, data)
	if errors.Is(err, zk.ErrNoNode) { // ZooKeeper removed the empty container
		return errAgain
	}
	return err
}

// grant returns the token of a hold whose node is the first. If this call has not
// created the node, it writes to it: what was read may come from a server that is cut off
// from the others, for which the session has ended.
func (b *Backend) grant(ctx context.Context, h *hold, r lock.Request, q queue, czxid int64, created bool) (guard.Token, error) {
	token, err := b.above(ctx, h, r, q, czxid)
	if err != nil {
		return 0, err
	}
	if !created {
		err = b.write(ctx, h, r)
	} else if !b.prolong(h, r.TTL) {
		err = lock.ErrLost
	}
	switch {
	case errors.Is(err, lock.ErrLost):
		return 0, errAgain
	case err != nil:
		return 0, err
	}
	return token, nil
}

// remove deletes the node of h. It returns errAgain when it is gone.
func (b *Backend) remove(ctx context.Context, h *hold) error {
	b.end(h)
	if _, err := b.delete(ctx, h); err != nil {
		b.clear(h)
		return err
	}
	b.forget(h)
	return errAgain
}

// refusal says who is first.
func (b *Backend) refusal(ctx context.Context, dir string, q queue, resource string) error {
	data, _, err := b.read(ctx, dir+"/"+q.locks[0].name)
	if errors.Is(err, zk.ErrNoNode) {
		return errAgain
	}
	if err != nil {
		return err
	}
	ttl, holder := decode(data)
	return &lock.HeldError{Resource: resource, Holder: holder, Remaining: ttl}
}

// list reads the nodes of a resource. It may be late, but not behind what this session
// has seen; fresh, it knows all that was written before it.
func (b *Backend) list(ctx context.Context, dir string, fresh bool) (queue, error) {
	if fresh {
		_, err := try(ctx, b.session, func(c *zk.Conn) (string, error) { return c.Sync(dir) })
		if err != nil {
			return queue{}, err
		}
	}
	names, err := try(ctx, b.session, func(c *zk.Conn) ([]string, error) {
		names, _, err := c.Children(dir)
		return names, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return queue{missing: true}, nil
	}
	if err != nil {
		return queue{}, err
	}
	return parse(names)
}

func (b *Backend) read(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	type reply struct {
		data []byte
		stat *zk.Stat
	}
	got, err := try(ctx, b.session, func(c *zk.Conn) (reply, error) {
		data, stat, err := c.Get(path)
		return reply{data, stat}, err
	})
	return got.data, got.stat, err
}
