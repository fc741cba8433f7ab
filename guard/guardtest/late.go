package guardtest

import (
	"context"
	"fmt"

	"github.com/go-fencing/fencing/guard"
)

// S1: A pauses, B takes over and writes, A wakes up and writes.
func lateWriteIsRefused(ctx context.Context, store Store) error {
	s := newScene(store)
	a, b := s.fence("A", 33), s.fence("B", 34)
	s.raise(ctx, a)
	s.write(ctx, a, "from A")
	s.raise(ctx, b)
	s.holds(ctx, b, "from A")
	s.write(ctx, b, "from B")
	s.writeIsStale(ctx, a, b)
	s.holds(ctx, b, "from B")
	return s.err
}

// S2: A wakes up after B has read and before B has written. A check of the token
// at the write alone admits A here, and B then overwrites it from a stale read.
func raiseClosesTheReadWindow(ctx context.Context, store Store) error {
	s := newScene(store)
	a, b := s.fence("A", 33), s.fence("B", 34)
	s.raise(ctx, a)
	s.write(ctx, a, "100")
	s.holds(ctx, a, "100") // A has read, and pauses
	s.raise(ctx, b)
	s.holds(ctx, b, "100") // B has read
	s.writeIsStale(ctx, a, b)
	s.holds(ctx, b, "100")
	s.write(ctx, b, "110")
	s.writeIsStale(ctx, a, b)
	s.holds(ctx, b, "110")
	return s.err
}

// S28: a nested scope of one holder shares the fence; neither fences the other.
func nestedScopesShareTheFence(ctx context.Context, store Store) error {
	s := newScene(store)
	a, b := s.fence("A", 33), s.fence("B", 34)
	outer := guard.NewContext(ctx, a)
	inner := guard.NewContext(outer, a)
	append1 := func(ctx context.Context, want, mark string) {
		if s.err != nil {
			return
		}
		s.accept("write in the "+mark+" scope", s.Update(ctx, func(ctx context.Context, tx Tx) error {
			got, _, err := tx.Get(ctx, s.key("k"))
			if err != nil {
				return err
			}
			if got != want {
				return fmt.Errorf("read %q, want %q", got, want)
			}
			return tx.Put(ctx, s.key("k"), got+mark+",")
		}))
	}
	s.raise(ctx, a)
	append1(outer, "", "outer")
	s.raise(ctx, a) // the nested scope, too, raises before its first read
	append1(inner, "outer,", "inner")
	append1(outer, "outer,inner,", "outer")
	s.raise(ctx, b)
	s.writeIsStale(inner, a, b)
	s.writeIsStale(outer, a, b)
	s.holds(ctx, b, "outer,inner,outer,")
	return s.err
}

// S36: B deletes the row, and A inserts it again. The fence outlives the data.
func reinsertAfterDelete(ctx context.Context, store Store) error {
	s := newScene(store)
	a, b := s.fence("A", 33), s.fence("B", 34)
	s.raise(ctx, a)
	s.write(ctx, a, "from A")
	s.raise(ctx, b)
	if s.err == nil {
		s.accept("delete by B", s.Update(guard.NewContext(ctx, b), func(ctx context.Context, tx Tx) error { return tx.Delete(ctx, s.key("k")) }))
	}
	s.writeIsStale(ctx, a, b)
	s.raiseIsStale(ctx, a, b)
	s.holds(ctx, b, "")
	s.write(ctx, b, "from B")
	s.holds(ctx, b, "from B")
	return s.err
}

// The plain store, so that a mistake in the test's own table is seen as such.
func storeKeepsData(ctx context.Context, store Store) error {
	s := newScene(store)
	a := s.fence("A", 1)
	s.raise(ctx, a)
	s.holds(ctx, a, "")
	s.write(ctx, a, "first")
	s.holds(ctx, a, "first")
	s.write(ctx, a, "second")
	s.holds(ctx, a, "second")
	if s.err != nil {
		return s.err
	}
	s.accept("one transaction", s.Update(guard.NewContext(ctx, a), func(ctx context.Context, tx Tx) error {
		if err := tx.Put(ctx, s.key("own"), "own"); err != nil {
			return err
		}
		if value, ok, err := tx.Get(ctx, s.key("own")); err != nil || !ok || value != "own" {
			return fmt.Errorf("a transaction reads %q, %t, %w of its own write, want \"own\", true", value, ok, orNil(err))
		}
		if err := tx.Delete(ctx, s.key("missing")); err != nil {
			return fmt.Errorf("delete a missing key: %w", err)
		}
		return tx.Delete(ctx, s.key("k"))
	}))
	s.holds(ctx, a, "")
	s.keyHolds(ctx, a, "own", "own")
	s.keyHolds(ctx, a, "missing", "")
	return s.err
}
