package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Memory guards data of one process: the reference implementation of the rules.
// It is safe for concurrent use.
type Memory struct {
	mu        sync.Mutex
	resources map[string]*memoryResource
}

// A memoryResource is the gate of one resource: writes share it, a raise has it
// alone. A waiting raise keeps new writes out, so that a stream of writes of the
// old holder cannot starve the new one.
type memoryResource struct {
	record  Record
	writes  int           // running writes
	raises  int           // waiting raises
	changed chan struct{} // closed at the next change of the counts
}

// NewMemory returns a guard without any fence.
func NewMemory() *Memory { return &Memory{resources: make(map[string]*memoryResource)} }

// Raise implements [Guard]. It waits until the running writes of the resource
// have ended; ErrBlocked if ctx ends first. A context that has ended already is
// refused with its cause.
func (m *Memory) Raise(ctx context.Context, f Fence) error {
	if err := f.Validate(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("guard: raise %q token %d: %w", f.Resource, f.Token, ended(ctx))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resource(f.Resource)
	// What does not change the fence has nothing to wait for, and keeps no write out.
	if err := r.record.Raise(f); err != nil || r.record.is(f) {
		return err
	}
	r.raises++
	defer func() { r.raises--; r.signal() }()
	for r.writes > 0 {
		if err := m.wait(ctx, r); err != nil {
			return fmt.Errorf("guard: raise %q token %d: %w by %d running writes: %w", f.Resource, f.Token, ErrBlocked, r.writes, err)
		}
	}
	if err := r.record.Raise(f); err != nil {
		return err
	}
	if !r.record.is(f) {
		r.record = Record{Fence: f, Since: time.Now()}
	}
	return nil
}

// Write runs fn while the fence that ctx carries for resource is the current one,
// and keeps it so until fn returns. fn is not run at all if there is no such
// fence (ErrNoFence), or the guard refuses it (ErrStale, ErrNotRaised), or ctx has
// ended. fn must not call Write for the same resource again.
func (m *Memory) Write(ctx context.Context, resource string, fn func() error) error {
	f, ok := FromContext(ctx, resource)
	if !ok {
		return fmt.Errorf("guard: write to %q: %w in the context; acquire a lease and use its context", resource, ErrNoFence)
	}
	r, err := m.enter(ctx, f)
	if err != nil {
		return err
	}
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.writes--
		r.signal()
	}()
	return fn()
}

func (m *Memory) enter(ctx context.Context, f Fence) (*memoryResource, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("guard: enter %q token %d: %w", f.Resource, f.Token, ended(ctx))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resource(f.Resource)
	for r.raises > 0 {
		if err := m.wait(ctx, r); err != nil {
			return nil, fmt.Errorf("guard: enter %q token %d: waiting for a raise: %w", f.Resource, f.Token, err)
		}
	}
	if err := r.record.Enter(f); err != nil {
		return nil, err
	}
	r.writes++
	return r, nil
}

func (m *Memory) resource(name string) *memoryResource {
	r := m.resources[name]
	if r == nil {
		r = &memoryResource{changed: make(chan struct{})}
		m.resources[name] = r
	}
	return r
}

// wait gives up the mutex until the resource changes or ctx ends.
func (m *Memory) wait(ctx context.Context, r *memoryResource) error {
	changed := r.changed
	m.mu.Unlock()
	defer m.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

func (r *memoryResource) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// ended returns the error of a context, with its cause where that says more.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
