package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// A Backend keeps locks in ZooKeeper, through a session of its own, and one more once
// somebody waits. It is safe for concurrent use.
type Backend struct {
	servers    []string
	config     *config
	session    *session // of the nodes
	background sync.WaitGroup

	mu        sync.Mutex
	ear       *session                 // of the watches, nil before the first
	holds     map[string]*hold         // by directory and mark
	leftovers map[*hold]bool           // that have ended, of which there may be nodes; true if a sweeper has it
	sweepers  int                      // who delete these
	watches   map[string]chan struct{} // by path; closed when what is there changes
	closing   bool
}

var (
	_ lock.Backend     = (*Backend)(nil)
	_ lock.Waiter      = (*Backend)(nil)
	_ lock.Inspector   = (*Backend)(nil)
	_ lock.FairBackend = (*Backend)(nil)
	_ lock.Bounded     = (*Backend)(nil)
)

// New returns a back end on the ensemble that has these servers, each of the form
// host:port; the port defaults to 2181. Name all of them. It does not wait for a
// connection: calls do, for 10s at most. Close it when its lockers are closed.
func New(servers []string, opts ...Option) (*Backend, error) {
	c, err := newConfig(servers, opts)
	if err != nil {
		return nil, err
	}
	b := &Backend{servers: slices.Clone(servers), config: c, holds: make(map[string]*hold), leftovers: make(map[*hold]bool), watches: make(map[string]chan struct{})}
	if b.session, err = newSession(b.servers, c, false); err != nil {
		return nil, fmt.Errorf("zklock: %w", err)
	}
	return b, nil
}

// Close ends the session, and with it every lock that it still has. Where ZooKeeper
// cannot be told, they end by the session timeout. It takes 3s at most.
func (b *Backend) Close() error {
	b.mu.Lock()
	already := b.closing
	b.closing = true
	for _, h := range b.holds {
		if h.timer != nil {
			h.timer.Stop()
		}
	}
	ear := b.ear
	b.mu.Unlock()
	if !already {
		if ear != nil { // both at once, since each may have to wait for a server
			b.background.Go(ear.close)
		}
		b.session.close()
		b.background.Wait()
	}
	return nil
}

// Bounded implements [lock.Bounded]: no call outlives its context.
func (b *Backend) Bounded() bool { return true }

// Acquire implements [lock.Backend]. Beyond the errors named there it returns
// sequencer.ErrJump if r.After is implausibly far ahead of ZooKeeper's zxid,
// sequencer.ErrExhausted at the end of the integers, and guard.ErrInvalid for a TTL that
// the session timeout does not cover, see [WithSessionTimeout]. Remaining of a
// [lock.HeldError] is the holder's whole TTL; the lock of one that died ends with its
// session, which is later.
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	token, err := b.acquire(ctx, r, 0)
	return token, b.failed("acquire", r.Resource, err)
}

// AcquireInTurn implements [lock.FairBackend]: the contender's node stays where it is
// in the queue. That of a process that died stays until its session ends.
func (b *Backend) AcquireInTurn(ctx context.Context, r lock.Request, patience time.Duration) (guard.Token, error) {
	token, err := b.acquire(ctx, r, max(patience, time.Millisecond))
	return token, b.failed("acquire", r.Resource, err)
}

// Withdraw implements [lock.FairBackend].
func (b *Backend) Withdraw(ctx context.Context, r lock.Request) error {
	if h := b.known(b.dir(r.Resource), mark(r.Nonce)); h != nil {
		b.mu.Lock()
		granted := h.granted
		b.mu.Unlock()
		if granted { // it is in no queue
			return nil
		}
	}
	err := b.release(ctx, r)
	if errors.Is(err, lock.ErrLost) {
		return nil
	}
	return b.failed("withdraw", r.Resource, err)
}

// Renew implements [lock.Backend]. It writes to the lock's node, which the leader
// carries out only while the session lives: that a server answers this client is no
// proof, since one that is cut off from the others does. A lock belongs to the back end
// that acquired it, and no other can renew it.
func (b *Backend) Renew(ctx context.Context, r lock.Request) error {
	return b.failed("renew", r.Resource, b.renew(ctx, r))
}

func (b *Backend) renew(ctx context.Context, r lock.Request) error {
	if err := b.validate(r); err != nil {
		return err
	}
	ctx, cancel, err := b.session.bound(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if err := b.covers(r.TTL); err != nil {
		return err
	}
	h := b.known(b.dir(r.Resource), mark(r.Nonce))
	if h == nil {
		return lock.ErrLost
	}
	b.mu.Lock()
	holds := h.granted && !h.ended
	b.mu.Unlock()
	if !holds {
		return lock.ErrLost
	}
	return b.write(ctx, h, r)
}

// write renews the node of a hold, and with it the hold.
func (b *Backend) write(ctx context.Context, h *hold, r lock.Request) error {
	name, _ := b.node(h)
	path := h.dir + "/" + name
	stat, err := try(ctx, b.session, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(path, encode(r), -1) })
	switch {
	case errors.Is(err, zk.ErrNoNode):
		b.forget(h)
		return lock.ErrLost
	case err != nil:
		return err
	case stat.EphemeralOwner != b.session.conn.SessionID():
		b.forget(h) // in a directory that was made anew, where the numbers begin again
		return lock.ErrLost
	case !b.prolong(h, r.TTL): // its time was over before the reply came
		return lock.ErrLost
	}
	return nil
}

// Release implements [lock.Backend]. It deletes the node that has the hash of r.Nonce in
// its name, which is nobody else's, however late or often it arrives. Where the outcome
// is not known it goes on in the background, if this back end has created the node, until
// that session ends.
func (b *Backend) Release(ctx context.Context, r lock.Request) error {
	return b.failed("release", r.Resource, b.release(ctx, r))
}

func (b *Backend) release(ctx context.Context, r lock.Request) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	dir, m := b.dir(r.Resource), mark(r.Nonce)
	h := b.known(dir, m)
	ours := h != nil
	if !ours { // it may be of another back end
		h = &hold{dir: dir, mark: m}
	}
	late, again := b.releaseHold(h)
	if late {
		return lock.ErrLost
	}
	ctx, cancel, err := b.session.bound(ctx)
	if err != nil {
		b.clear(h)
		return err
	}
	defer cancel()
	existed, err := b.delete(ctx, h)
	switch {
	case err != nil:
		b.clear(h)
		return err
	case ours:
		b.forget(h)
	}
	if !existed && (!again || b.outlived(h)) { // by an earlier try it may have been deleted
		return lock.ErrLost
	}
	return nil
}

// Inspect implements [lock.Inspector]. Remaining is the whole TTL: when it was last
// renewed only a clock could tell that is not ours.
func (b *Backend) Inspect(ctx context.Context, resource string) (lock.Holding, error) {
	h, err := b.inspect(ctx, resource)
	return h, b.failed("inspect", resource, err)
}

func (b *Backend) inspect(ctx context.Context, resource string) (lock.Holding, error) {
	h := lock.Holding{Resource: resource}
	if err := guard.ValidateResource(resource); err != nil {
		return h, err
	}
	ctx, cancel, err := b.session.bound(ctx)
	if err != nil {
		return h, err
	}
	defer cancel()
	for {
		q, err := b.list(ctx, b.dir(resource), false)
		if err != nil || len(q.locks) == 0 {
			return h, err
		}
		data, stat, err := b.read(ctx, b.dir(resource)+"/"+q.locks[0].name)
		if errors.Is(err, zk.ErrNoNode) { // it has just ended
			continue
		}
		if err != nil {
			return h, err
		}
		h.Token, err = q.token(stat.Czxid)
		h.Remaining, h.Holder = decode(data)
		h.Members = 1
		return h, err
	}
}

// validate checks the TTL also against the timeout that the session asks for.
func (b *Backend) validate(r lock.Request) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if r.TTL > longest(b.config.timeout) {
		return fmt.Errorf("a TTL of %v needs a session timeout of %v, and this back end asks for %v; give New a longer one by WithSessionTimeout, or take a TTL of %v at most: %w",
			r.TTL, span(r.TTL), b.config.timeout, longest(b.config.timeout), guard.ErrInvalid)
	}
	return nil
}

// span is the session timeout that a TTL needs: a renewal may be the first that a
// server has to report of the client since the last one, a third of the TTL before, and
// the server may fail before it has reported this one.
func span(ttl time.Duration) time.Duration { return ttl + ttl/3 }

// longest is the TTL that a session timeout covers.
func longest(timeout time.Duration) time.Duration { return timeout * 3 / 4 }

// covers checks the timeout that ZooKeeper granted.
func (b *Backend) covers(ttl time.Duration) error {
	granted, _ := b.session.state()
	if granted > 0 && ttl > longest(granted) {
		return fmt.Errorf("a TTL of %v needs a session timeout of %v, and ZooKeeper grants %v; raise its maxSessionTimeout, or take a TTL of %v at most: %w",
			ttl, span(ttl), granted, longest(granted), guard.ErrInvalid)
	}
	return nil
}

// failed says what failed, and what its reader can do about it.
func (b *Backend) failed(what, resource string, err error) error {
	if err == nil || errors.Is(err, lock.ErrHeld) {
		return err
	}
	granted, connection := b.session.state()
	if granted == 0 && connection == nil {
		connection = errors.New("no server has granted a session yet")
	}
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		err = fmt.Errorf("give this client the rights to read, write, create and delete below %s, or give New what proves who it is by WithAuth: %w", b.config.prefix, err)
	case errors.Is(err, zk.ErrAuthFailed):
		err = fmt.Errorf("ZooKeeper does not accept what WithAuth gives: %w", err)
	case errors.Is(err, zk.ErrInvalidACL):
		err = fmt.Errorf("ZooKeeper does not accept the ACL of WithACL; one for \"auth\" needs WithAuth: %w", err)
	case connection != nil && (interrupted(err) || errors.Is(err, context.DeadlineExceeded)):
		err = fmt.Errorf("%w; the connection: %w", err, connection)
	}
	return fmt.Errorf("zklock: %s %q: %w", what, resource, err)
}
