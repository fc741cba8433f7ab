// Package filelock is a lock back end in the files of a directory, for the
// processes of one host: no server needed.
//
// A lock is a record in the file of its resource: token, nonce, holder, and when it
// expires. The file itself is locked by flock(2) only while a process reads and
// writes the record, so that the lease has a TTL like that of any other back end:
// when the holder is paused past it, another may take the lock. When the holder
// crashes its lock is free at once, whatever the TTL: each process keeps a file of
// its own locked as long as it lives, which the kernel undoes when it does not.
//
// Time is that since the boot of the host, which no one sets; it stands still while the
// host is suspended, as the clock by which holders presume their leases lost. A token is on disk before it is handed out; the rest of a
// record need not be, since no holder survives the host.
//
// The directory must be on a disk of the host: New refuses NFS and the other network
// file systems that it knows, as an flock there may not reach another host, and as
// the time of another host means nothing here. Containers may share it.
//
// The file of a resource stays, with its token: to delete it would give two
// processes two files to lock, and hand out its tokens again. So this is for a
// number of resources that has a bound. Whoever wants the files gone stops the
// processes first. There is no queue: lock.WithFair is refused.
//
// It works on Linux and macOS; elsewhere New returns an error.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localfile"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/sequencer"
)

// A Backend keeps locks in files. It is safe for concurrent use. It implements
// [lock.Waiter], [lock.Joiner] and [lock.Inspector]; it is not [lock.Bounded],
// because a disk may hang.
type Backend struct {
	dir      string
	maxJump  guard.Token
	self     *process
	clock    string // what tells the time here, comparable with that of the same name
	watchers watchers
}

var (
	_ lock.Backend   = (*Backend)(nil)
	_ lock.Waiter    = (*Backend)(nil)
	_ lock.Joiner    = (*Backend)(nil)
	_ lock.Inspector = (*Backend)(nil)
)

// An Option configures a [Backend].
type Option func(*Backend)

// WithMaxJump bounds how far ahead of a counter an acquisition may ask for a
// token. Defaults to sequencer.DefaultMaxJump.
func WithMaxJump(d guard.Token) Option { return func(b *Backend) { b.maxJump = d } }

// New returns a back end in the directory dir, which must exist and be writable,
// and should have nothing else in it. All processes that share locks name the same
// one. New makes a file there that says that this process is alive, and removes
// those of processes that are not. [Backend.Close] ends it.
func New(dir string, opts ...Option) (*Backend, error) {
	b := &Backend{dir: dir, maxJump: sequencer.DefaultMaxJump}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("filelock: an option is nil")
		}
		opt(b)
	}
	if b.maxJump <= 0 {
		return nil, fmt.Errorf("filelock: greatest jump %d is not positive", b.maxJump)
	}
	if err := b.open(); err != nil {
		return nil, fmt.Errorf("filelock: directory %q: %w", dir, err)
	}
	return b, nil
}

func (b *Backend) open() (err error) {
	if b.clock, err = clockName(); err != nil {
		return err
	}
	if b.dir, err = localfile.Abs(b.dir); err != nil {
		return err
	}
	info, err := os.Stat(b.dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errors.New("it is no directory")
	}
	if err := localfile.CheckFileSystem(b.dir); err != nil {
		return err
	}
	buryProcesses(b.dir)
	b.self, err = newProcess(b.dir)
	return err
}

// Close makes this process count as dead: what it still holds is free at once. Close the
// locker first. Later acquisitions and renewals fail with fs.ErrClosed.
func (b *Backend) Close() error { return failed("close", b.dir, b.self.close()) }

// Acquire implements [lock.Backend]. Beyond the errors named there it returns
// sequencer.ErrJump if r.After is implausibly far ahead of the counter, and
// sequencer.ErrExhausted at the end of the integers. A lock whose file another
// process keeps busy, since it was paused just then, counts as held.
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	var token guard.Token
	err := b.do(ctx, r.Resource, true, busyLimit, func(f *file) (err error) {
		token, err = b.acquire(f, r)
		return err
	})
	if errors.Is(err, errBusy) {
		return 0, &lock.HeldError{Resource: r.Resource, Holder: "a process that has stopped in the middle of using the lock's file", Silent: true}
	}
	return token, failed("acquire", r.Resource, err)
}

func (b *Backend) acquire(f *file, r lock.Request) (guard.Token, error) {
	if err := b.self.stay(); err != nil {
		return 0, err
	}
	now, err := sinceBoot()
	if err != nil {
		return 0, err
	}
	l := b.live(f.lease, now)
	if l != nil && l.Nonce != r.Nonce {
		ours := !slices.ContainsFunc(l.Members, func(m member) bool { return m.Process != b.self.id })
		return 0, &lock.HeldError{Resource: r.Resource, Holder: l.Holder, Remaining: b.remaining(l, now), Silent: !ours}
	}
	if l == nil {
		l = &lease{Resource: r.Resource, Nonce: r.Nonce, Holder: r.Holder, Members: []member{{r.Nonce, b.self.id}}}
	}
	b.prolong(l, now, r.TTL)
	if l.Token > r.After {
		return l.Token, f.writeLease(l)
	}
	if l.Token, err = sequencer.Advance(f.token, r.After, b.maxJump); err != nil {
		return 0, err
	}
	return l.Token, f.writeAll(l)
}

// Renew implements [lock.Backend].
func (b *Backend) Renew(ctx context.Context, r lock.Request) error {
	return b.renew(ctx, "renew", r, func(*lease) {})
}

// Join implements [lock.Joiner].
func (b *Backend) Join(ctx context.Context, r lock.Request, id string) error {
	return b.renew(ctx, "join", r, func(l *lease) {
		if !slices.ContainsFunc(l.Members, func(m member) bool { return m.ID == id }) {
			l.Members = append(l.Members, member{id, b.self.id})
		}
	})
}

func (b *Backend) renew(ctx context.Context, what string, r lock.Request, change func(l *lease)) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return failed(what, r.Resource, b.do(ctx, r.Resource, false, busyLimit, func(f *file) error {
		now, err := sinceBoot()
		if err != nil {
			return err
		}
		l := b.live(f.lease, now)
		if l == nil || l.Nonce != r.Nonce {
			return lock.ErrLost
		}
		if err := b.self.stay(); err != nil {
			return err
		}
		change(l)
		b.prolong(l, now, r.TTL)
		return f.writeLease(l)
	}))
}

// Release implements [lock.Backend].
func (b *Backend) Release(ctx context.Context, r lock.Request) error { return b.Leave(ctx, r, r.Nonce) }

// Leave implements [lock.Joiner].
func (b *Backend) Leave(ctx context.Context, r lock.Request, id string) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	freed := false
	err := b.do(ctx, r.Resource, false, releaseLimit, func(f *file) error {
		now, err := sinceBoot()
		if err != nil {
			return err
		}
		l := b.live(f.lease, now)
		if l == nil || l.Nonce != r.Nonce {
			return lock.ErrLost
		}
		i := slices.IndexFunc(l.Members, func(m member) bool { return m.ID == id })
		if i < 0 {
			return lock.ErrLost
		}
		if l.Members = slices.Delete(l.Members, i, i+1); len(l.Members) == 0 {
			l, freed = nil, true
		}
		return f.writeLease(l)
	})
	if err == nil && freed {
		b.watchers.wake(r.Resource)
	}
	return failed("release", r.Resource, err)
}

// Inspect implements [lock.Inspector].
func (b *Backend) Inspect(ctx context.Context, resource string) (lock.Holding, error) {
	h := lock.Holding{Resource: resource}
	if err := guard.ValidateResource(resource); err != nil {
		return h, err
	}
	err := b.do(ctx, resource, false, busyLimit, func(f *file) error {
		now, err := sinceBoot()
		if err != nil {
			return err
		}
		if l := b.live(f.lease, now); l != nil {
			h.Token, h.Holder, h.Members, h.Remaining = l.Token, l.Holder, len(l.Members), b.remaining(l, now)
		}
		return nil
	})
	if errors.Is(err, lock.ErrLost) { // there is no file
		err = nil
	}
	return h, failed("inspect", resource, err)
}

// live returns the lease with those of its members whose processes are alive, nil
// if it has expired or nobody is left. Where a process has another clock, as in
// another time namespace, its life alone counts.
func (b *Backend) live(l *lease, now time.Duration) *lease {
	if l == nil || l.Clock == b.clock && now >= l.Expires {
		return nil
	}
	l.Members = slices.DeleteFunc(l.Members, func(m member) bool { return m.Process != b.self.id && !alive(b.dir, m.Process) })
	if len(l.Members) == 0 {
		return nil
	}
	return l
}

// prolong gives the lease another TTL. Members count on the longest among them.
func (b *Backend) prolong(l *lease, now, ttl time.Duration) {
	until := now + ttl
	if len(l.Members) == 1 || l.Clock != b.clock || until > l.Expires {
		l.Clock, l.Expires = b.clock, until
	}
}

func (b *Backend) remaining(l *lease, now time.Duration) time.Duration {
	if l.Clock != b.clock {
		return 0 // unknown
	}
	return max(0, l.Expires-now)
}

func failed(what, resource string, err error) error {
	if err == nil {
		return nil
	}
	if held, ok := errors.AsType[*lock.HeldError](err); ok {
		return held
	}
	return fmt.Errorf("filelock: %s %q: %w", what, resource, err)
}
