package objectguard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// patience is how long a call contends with others that change the same object, each
// of which gets on.
const patience = 10 * time.Second

// repeats is how often a Put is repeated whose reply was lost.
const repeats = 8

// A Guard raises fences in the objects of a bucket and fences writes to them. It is
// safe for concurrent use.
type Guard struct {
	bucket   Bucket
	object   func(resource string) string
	observer guard.Observer
}

var _ guard.Guard = (*Guard)(nil)

// An Option configures a [Guard].
type Option func(*Guard)

// WithObject says which object has the fence and the data of a resource. Defaults to
// the resource's own name. Resources with one object have all their fences in it, and
// each raise of one of them rewrites it. All processes need the same function, and it
// must not change.
func WithObject(object func(resource string) string) Option {
	return func(g *Guard) { g.object = object }
}

// WithObserver reports [guard.EventRaised], with how long the raise took,
// [guard.EventCommitted], with how much was left of the lease, and
// [guard.EventRefused], with the error: of a raise, of a write, and of a write whose
// outcome is unknown. Of a raise by a locker with an observer it is that one which is
// told.
func WithObserver(o guard.Observer) Option { return func(g *Guard) { g.observer = o } }

// New returns a guard on b. It does not talk to the store. The error names the option
// that makes no sense.
func New(b Bucket, opts ...Option) (*Guard, error) {
	if b == nil {
		return nil, errors.New("objectguard: the bucket is nil")
	}
	g := &Guard{bucket: b, object: func(resource string) string { return resource }}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("objectguard: an option is nil")
		}
		opt(g)
	}
	if g.object == nil {
		return nil, errors.New("objectguard: WithObject: the function is nil")
	}
	return g, nil
}

// Raise implements [guard.Guard]: it rewrites the object of the resource with f in it,
// on the condition that nobody else has changed it meanwhile, and makes one where there
// is none. That takes two requests, and one where f is the current fence already.
//
// A later fence in force is a [*guard.StaleError]. [guard.ErrBlocked] means that others
// went on changing the object for 10s. After any other error it is unknown whether f
// was raised; raise it again, which is safe, or acquire anew.
func (g *Guard) Raise(ctx context.Context, f guard.Fence) error {
	if err := f.Validate(); err != nil {
		return err
	}
	start := time.Now()
	err := g.raise(ctx, f)
	g.observer.Raised(ctx, f, time.Since(start), err)
	return err
}

func (g *Guard) raise(ctx context.Context, f guard.Fence) error {
	key := g.object(f.Resource)
	if key == "" {
		return fmt.Errorf("objectguard: raise %q: its object, from WithObject, has no name: %w", f.Resource, guard.ErrInvalid)
	}
	end, lost, unanswered := time.Now().Add(patience), 0, error(nil)
	for try := 1; ; try++ {
		o, version, err := g.get(ctx, key)
		switch {
		case err != nil && unanswered != nil:
			return fmt.Errorf("objectguard: raise %q: the reply was lost: %w; asked afterwards: %w", f.Resource, unanswered, err)
		case err != nil:
			return fmt.Errorf("objectguard: raise %q: nothing was written: %w", f.Resource, err)
		}
		changed, err := o.raise(f, time.Now().UTC())
		if err != nil || !changed {
			return err
		}
		err = g.put(ctx, key, o, version)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ErrChanged) && lost < repeats && ctx.Err() == nil:
			lost, unanswered = lost+1, err // if it was done, the next look finds it so
		case !errors.Is(err, ErrChanged):
			return fmt.Errorf("objectguard: raise %q: %w", f.Resource, err)
		case time.Now().After(end):
			return fmt.Errorf("objectguard: raise %q: %w: others have changed object %q, or kept it busy, at each of %d tries in %v", f.Resource, guard.ErrBlocked, key, try, patience)
		}
		rest(ctx, try)
	}
}

// get returns an object, or one without anything and without a version.
func (g *Guard) get(ctx context.Context, key string) (o object, version string, err error) {
	if ctx.Err() != nil {
		return o, "", context.Cause(ctx)
	}
	text, version, err := g.bucket.Get(ctx, key)
	switch {
	case errors.Is(err, ErrNoObject):
		return object{header: header{None: true}}, "", nil
	case err != nil:
		return o, "", fmt.Errorf("get %q: %w", key, because(ctx, err))
	case version == "":
		return o, "", fmt.Errorf("get %q: the bucket gave no version", key)
	}
	if o, err = parse(text); err != nil {
		return o, "", fmt.Errorf("object %q: %w", key, err)
	}
	return o, version, nil
}

func (g *Guard) put(ctx context.Context, key string, o object, version string) error {
	text, err := o.text()
	if err != nil {
		return err
	}
	if err := g.bucket.Put(ctx, key, text, version); err != nil {
		return fmt.Errorf("put %q: %w", key, because(ctx, err))
	}
	return nil
}

// because adds why ctx has ended.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// rest lets others get on, longer with each try.
func rest(ctx context.Context, try int) {
	most := time.Millisecond << min(try, 7)
	select {
	case <-time.After(rand.N(most)):
	case <-ctx.Done():
	}
}
