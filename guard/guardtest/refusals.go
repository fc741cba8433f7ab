package guardtest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-fencing/fencing/guard"
)

func noFenceIsRefused(ctx context.Context, store Store) error {
	s := newScene(store)
	a := s.fence("A", 33)
	s.raise(ctx, a)
	s.write(ctx, a, "from A")
	if s.err == nil {
		s.refuse("write without a fence in the context", s.put(ctx, s.key("k"), "from nobody"), guard.ErrNoFence)
	}
	s.holds(ctx, a, "from A")
	return s.err
}

// A missing fence means refused, and a data write never creates one: a store that
// has lost its fences must not let everyone in.
func notRaisedIsRefused(ctx context.Context, store Store) error {
	s := newScene(store)
	early, a, b := s.fence("early", 1), s.fence("A", 33), s.fence("B", 34)
	for range 2 { // the second time meets what the first one may have left
		s.writeIsRefused(ctx, a, guard.ErrNotRaised)
	}
	s.raise(ctx, early) // would be stale, had the write left a fence
	s.holds(ctx, early, "")
	s.raise(ctx, a)
	s.write(ctx, a, "from A")
	for range 2 { // a greater token is not enough, it must have been raised
		s.writeIsRefused(ctx, b, guard.ErrNotRaised)
	}
	s.write(ctx, a, "from A again")
	s.raise(ctx, b)
	s.holds(ctx, b, "from A again")
	return s.err
}

func invalidFenceIsRefused(ctx context.Context, store Store) error {
	s := newScene(store)
	for what, change := range map[string]func(f *guard.Fence){
		"an empty resource":                   func(f *guard.Fence) { f.Resource = "" },
		"a resource that is too long":         func(f *guard.Fence) { f.Resource += strings.Repeat("x", guard.MaxResource) },
		"a resource with a newline":           func(f *guard.Fence) { f.Resource += "\n" },
		"a resource with a NUL":               func(f *guard.Fence) { f.Resource += "\x00" },
		"a resource that is not UTF-8":        func(f *guard.Fence) { f.Resource += "\xff" },
		"token 0":                             func(f *guard.Fence) { f.Token = 0 },
		"a negative token":                    func(f *guard.Fence) { f.Token = -33 },
		"an empty nonce":                      func(f *guard.Fence) { f.Nonce = "" },
		"a nonce that is too long":            func(f *guard.Fence) { f.Nonce = strings.Repeat("n", guard.MaxNonce+1) },
		"a nonce with a control character":    func(f *guard.Fence) { f.Nonce += "\t" },
		"a holder that is too long":           func(f *guard.Fence) { f.Holder = strings.Repeat("h", guard.MaxHolder+1) },
		"a holder that is not UTF-8":          func(f *guard.Fence) { f.Holder = "\xc3" },
		"nothing at all":                      func(f *guard.Fence) { *f = guard.Fence{} },
		"the resource alone":                  func(f *guard.Fence) { *f = guard.Fence{Resource: f.Resource} },
		"a token that went round through int": func(f *guard.Fence) { f.Token = -9223372036854775808 },
	} {
		f := s.fence("A", 33)
		change(&f)
		s.refuse("raise a fence with "+what, s.Raise(ctx, f), guard.ErrInvalid)
		if err := s.put(ctx, s.key("k"), "written under an invalid fence", f); err == nil {
			s.failf("write under a fence with %s: got no error", what)
		}
	}
	a := s.fence("A", 1) // would be stale, had one of them been raised
	s.raise(ctx, a)
	s.holds(ctx, a, "")
	return s.err
}

// A transaction whose fence was refused at its start has no effect at all, and
// none of its statements got as far as to succeed.
func refusedUpdateRunsNothing(ctx context.Context, store Store) error {
	s := newScene(store)
	a, b := s.fence("A", 33), s.fence("B", 34)
	s.raise(ctx, a)
	s.write(ctx, a, "from A")
	s.raise(ctx, b)
	for what, fences := range map[string][]guard.Fence{
		"a stale fence":                  {a},
		"a fence that was not raised":    {s.fence("C", 35)},
		"a fence of an unknown resource": {s.of("unknown", "C", 35)},
		"no fence":                       nil,
	} {
		wrote := false
		err := s.Update(guard.NewContext(ctx, fences...), func(ctx context.Context, tx Tx) error {
			err := tx.Put(ctx, s.key("k"), "written by a transaction that was refused")
			wrote = err == nil
			return err
		})
		if err == nil {
			s.failf("update under %s: got no error", what)
		}
		if wrote {
			s.failf("update under %s: its write succeeded before the refusal: %w", what, orNil(err))
		}
		s.holds(ctx, b, "from A")
	}
	return s.err
}

var errFn = errors.New("guardtest: fn failed")

func failedUpdateLeavesNothing(ctx context.Context, store Store) error {
	s := newScene(store)
	a, b := s.fence("A", 33), s.fence("B", 34)
	s.raise(ctx, a)
	s.write(ctx, a, "before")
	if s.err == nil {
		err := s.Update(guard.NewContext(ctx, a), func(ctx context.Context, tx Tx) error {
			return errors.Join(tx.Put(ctx, s.key("k2"), "from a failed fn"), tx.Delete(ctx, s.key("k")), errFn)
		})
		s.refuse("update whose fn failed", err, errFn)
	}
	s.holds(ctx, a, "before")
	s.keyHolds(ctx, a, "k2", "")
	s.raise(ctx, b) // would wait for ever, had the transaction not ended
	s.holds(ctx, b, "before")
	return s.err
}

func panickedUpdateLeavesNothing(ctx context.Context, store Store) error {
	s := newScene(store)
	a, b := s.fence("A", 33), s.fence("B", 34)
	s.raise(ctx, a)
	s.write(ctx, a, "before")
	if s.err == nil {
		s.refuse("update whose fn panicked", panics(func() error {
			return s.Update(guard.NewContext(ctx, a), func(ctx context.Context, tx Tx) error {
				if err := tx.Put(ctx, s.key("k"), "from a panicked fn"); err != nil {
					return err
				}
				panic(errFn)
			})
		}), errFn)
	}
	s.raise(ctx, b)
	s.holds(ctx, b, "before")
	return s.err
}

// panics returns the error that fn panicked with, or the one that it returned if
// the store turned the panic into it.
func panics(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
			if cause, ok := v.(error); ok {
				err = cause
			}
		}
	}()
	return fn()
}
