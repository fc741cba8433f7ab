package zklock

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-fencing/fencing/lock"
)

const (
	watchRetry  = 200 * time.Millisecond // before the next try, twice as long after each failure
	watchGiveUp = 10 * time.Second       // up to this
)

// Watch implements [lock.Waiter]. Who queues watches the lock's node before its own. Who
// does not gets a node among those who wait, and watches the one before: a release
// wakes one of them, and that one's end of waiting the next.
func (b *Backend) Watch(r lock.Request) (wake <-chan struct{}, stop func()) {
	signal := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{backend: b, signal: signal, dir: b.dir(r.Resource)}
	if r.Nonce != "" {
		w.mark = mark(r.Nonce)
	} else {
		w.mark = waitKind + rand.Text() + "-"
		w.own = &hold{dir: w.dir, mark: w.mark}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closing {
		b.background.Go(func() { w.run(ctx) })
	}
	return signal, cancel
}

type watcher struct {
	backend   *Backend
	signal    chan<- struct{}
	dir, mark string
	own       *hold // its node, nil if it queues
	live      bool  // the watch is in effect
}

func (w *watcher) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.backend.session.life, cancel)()
	for wait := watchRetry; ctx.Err() == nil; {
		if w.step(ctx) == nil {
			wait = watchRetry
			continue
		}
		w.backend.session.pause(ctx, wait)
		wait = min(2*wait, watchGiveUp)
	}
	if w.own != nil && w.backend.end(w.own) {
		w.backend.clear(w.own)
	}
}

// step returns when there is something new to look at.
func (w *watcher) step(ctx context.Context) error {
	b := w.backend
	bounded, cancel, err := b.session.bound(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	q, err := b.list(bounded, w.dir, false)
	if err != nil {
		return err
	}
	mine := q.of(w.mark)
	switch {
	case len(mine) == 0 && w.own == nil: // let it ask for a place
		w.notify()
		return errAgain
	case len(mine) == 0:
		if err := b.createIn(bounded, w.own, nil, q.missing); err != nil && !errors.Is(err, errAgain) {
			return err
		}
		return nil
	}
	predecessor, waits := q.before(mine[0])
	if waits {
		changed, err := b.watch(bounded, w.dir+"/"+predecessor)
		if err != nil {
			return err
		}
		if !w.live {
			w.notify()
		}
		w.sleep(ctx, changed)
		return nil
	}
	changed, err := b.watch(bounded, w.dir)
	if err != nil {
		return err
	}
	if q, err = b.list(bounded, w.dir, false); err != nil {
		return err
	}
	if _, waits := q.before(mine[0]); waits {
		return nil
	}
	w.notify()
	w.sleep(ctx, changed)
	return nil
}

func (w *watcher) notify() {
	w.live = true
	select {
	case w.signal <- struct{}{}:
	default: // it has a wake-up waiting
	}
}

func (w *watcher) sleep(ctx context.Context, changed <-chan struct{}) {
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// earTimeout is the session timeout of the ear at most. It has nothing to lose with its
// session, and notices the sooner that its server hangs.
const earTimeout = 6 * time.Second

// listen returns the session of the watches. That they have one of their own, which ends
// with its connection, is because of the client: it neither takes back a watch, nor
// renews watches on another connection without a race with the replies that it reads.
func (b *Backend) listen() (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closing:
		return nil, errClosed
	case b.ear != nil && b.ear.life.Err() == nil:
		return b.ear, nil
	}
	c := *b.config
	c.timeout = min(c.timeout, earTimeout)
	ear, err := newSession(b.servers, &c, true)
	if err != nil {
		return nil, err
	}
	b.ear = ear
	return ear, nil
}

// watch returns a channel that is closed when the children of a node change, or the
// node is deleted, or that cannot be told any more. A lock's node has no children, so
// that its renewals wake nobody. All who watch a node share one watch.
func (b *Backend) watch(ctx context.Context, path string) (<-chan struct{}, error) {
	b.mu.Lock()
	changed := b.watches[path]
	b.mu.Unlock()
	if changed != nil {
		return changed, nil
	}
	ear, err := b.listen()
	if err != nil {
		return nil, err
	}
	if err := ear.authenticate(ctx); err != nil {
		return nil, err
	}
	events, err := try(ctx, ear, func(c *zk.Conn) (<-chan zk.Event, error) {
		if _, err := c.Sync(path); err != nil { // its server may be behind that of the nodes
			return nil, err
		}
		_, _, events, err := c.ChildrenW(path)
		return events, err
	})
	changed = make(chan struct{})
	if errors.Is(err, zk.ErrNoNode) {
		close(changed)
		return changed, nil
	}
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watches[path] == nil {
		b.watches[path] = changed
	}
	go func() {
		<-events
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.watches[path] == changed {
			delete(b.watches, path)
		}
		close(changed)
	}()
	return changed, nil
}
