package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// releaseTimeout bounds a release and every other clean-up, none of which
// depends on the caller's context.
const releaseTimeout = 5 * time.Second

// cleanWait is the time to the second try of a clean-up; that to the next is twice as
// long each time.
const cleanWait = 50 * time.Millisecond

// A Locker acquires leases. It is safe for concurrent use; a process needs one
// per back end and set of options.
type Locker struct {
	*config
	backend  Backend
	passer   Passer  // nil if the back end is none, or every waiter has a line of its own
	granter  Granter // as well; or if nothing renews what it grants
	keeper   *keeper
	noAnswer error // to an Acquire within the TTL
	lines    lines

	mu      sync.Mutex
	closed  bool
	closing chan struct{}  // closed by Close
	running sync.WaitGroup // acquisitions, and clean-up that outlives them
}

// New returns a locker on b. It does not talk to the back end. The error names
// the option that makes no sense.
func New(b Backend, opts ...Option) (*Locker, error) {
	if isNil(b) {
		return nil, errors.New("lock: the back end is nil")
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if _, ok := b.(FairBackend); c.fair && !ok {
		return nil, fmt.Errorf("lock: WithFair needs a back end that queues, %T does not", b)
	}
	l := &Locker{
		config: c, backend: b, keeper: newKeeper(b, c), closing: make(chan struct{}),
		lines:    lines{of: make(map[string]*line)},
		noAnswer: fmt.Errorf("no answer within the TTL of %v: %w", c.ttl, context.DeadlineExceeded),
	}
	if !l.alone() {
		l.passer, _ = b.(Passer)
		if !c.noRenewal {
			l.granter, _ = b.(Granter)
		}
	}
	return l, nil
}

// Acquire waits until it has the lock of resource, raises the lease's fence on
// every guard and returns the lease. ctx bounds the wait and is the parent of the
// lease's context, which ends with it; to bound the wait alone there is [WithMaxWait].
// A context that has the lock already re-enters it: the lease shares the fence, and the
// lock is released with the last lease.
//
// When ctx ends first the error wraps its error and, if the lock was held, a
// *HeldError. A back end that fails at first is reported at once; one that fails
// while the lock is waited for is asked again for half a minute. An attempt whose
// outcome is unknown is undone in the background.
func (l *Locker) Acquire(ctx context.Context, resource string) (*Lease, error) {
	return l.acquire(ctx, []string{resource}, true)
}

// TryAcquire is Acquire without waiting: ErrHeld if another has the lock.
func (l *Locker) TryAcquire(ctx context.Context, resource string) (*Lease, error) {
	return l.acquire(ctx, []string{resource}, false)
}

// AcquireAll acquires the locks of all resources, or none: one lease over them,
// whose context carries a fence for each. It takes them in sorted order, so that
// two calls never wait for each other crosswise; a call under a lease of one of
// them may.
func (l *Locker) AcquireAll(ctx context.Context, resources ...string) (*Lease, error) {
	if len(resources) == 0 {
		return nil, errors.New("lock: acquire all: no resources")
	}
	sorted := slices.Clone(resources)
	slices.Sort(sorted)
	return l.acquire(ctx, slices.Compact(sorted), true)
}

// Do runs fn with the context of a lease on resource and releases the lease, also
// when fn panics. It returns fn's error, joined with that of the release if there is
// one: ErrLost if the lease did not last until fn returned. Where fn had returned
// nil, what it committed stays: do not simply run it again. A nil fn is refused
// before the lock is taken.
func (l *Locker) Do(ctx context.Context, resource string, fn func(ctx context.Context) error) (err error) {
	if fn == nil {
		return fmt.Errorf("lock: do %q: the function is nil; nothing was locked", resource)
	}
	s, err := l.Acquire(ctx, resource)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		switch lost := s.Release(ctx); {
		case lost == nil:
		case returned && err == nil:
			err = fmt.Errorf("%w; the function had returned without an error, so what it committed stays", lost)
		default:
			err = errors.Join(err, lost)
		}
	}()
	err = fn(s.Context())
	returned = true
	return err
}

// Close makes waiting and later acquisitions fail with ErrClosed, releases every
// lease that is still held, and waits, for a bounded time, for clean-up in the
// background. It does not close the back end's client.
func (l *Locker) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	l.mu.Unlock()
	end := time.Now().Add(releaseTimeout)
	errs := l.releaseAll(end)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.running.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(time.Until(end)):
		errs = append(errs, fmt.Errorf("lock: close: calls to the back end are still running after %v: %w", releaseTimeout, ErrUnknown))
	}
	return errors.Join(errs...)
}

// releaseAll releases every lease, several at a time.
func (l *Locker) releaseAll(end time.Time) []error {
	var (
		leases = l.keeper.leases()
		errs   = make([]error, len(leases))
		next   atomic.Int64
		all    sync.WaitGroup
	)
	for range min(16, len(leases)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(leases); i = int(next.Add(1)) - 1 {
				if err := leases[i].release(context.Background(), time.Now(), end); !errors.Is(err, ErrReleased) {
					errs[i] = err
				}
			}
		})
	}
	all.Wait()
	return errs
}

// begin admits one call, which ends with l.running.Done, or says why not.
func (l *Locker) begin(ctx context.Context, what string, resources ...string) error {
	for _, r := range resources {
		if err := guard.ValidateResource(r); err != nil {
			return fmt.Errorf("lock: %s: %w", what, err)
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("lock: %s %s: %w", what, quoted(resources), ended(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("lock: %s %s: %w", what, quoted(resources), ErrClosed)
	}
	l.running.Add(1)
	return nil
}

func quoted(resources []string) string {
	names := make([]string, len(resources))
	for i, r := range resources {
		names[i] = strconv.Quote(r)
	}
	return strings.Join(names, ", ")
}

func (l *Locker) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// ended returns the error of a context, with its cause where that says more.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// detach runs clean-up that must not depend on a context that may be dead. What lost the
// reply for which there is something to clean up may not be over, so it is tried until it
// succeeds, time is over, or the locker is closed. The caller is itself counted in
// l.running.
func (l *Locker) detach(clean func(ctx context.Context) error) {
	l.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		for pause := cleanWait; ; pause *= 2 {
			if err := clean(ctx); err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrUnknown) {
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			case <-l.closing:
				return
			}
		}
	})
}
