package guardtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// S3: A's transaction has entered its fence and stops before its write.
func pauseBetweenCheckAndWrite(ctx context.Context, store Store) error {
	return overtakePausedTransaction(ctx, store, beforeWrite)
}

// S4: A's transaction has written and stops before its commit.
func lateCommit(ctx context.Context, store Store) error {
	return overtakePausedTransaction(ctx, store, beforeCommit)
}

type pausePoint int

const (
	beforeWrite pausePoint = iota
	beforeCommit
)

// overtakePausedTransaction lets B raise and read while a transaction of A stands
// still, and A go on afterwards. If A's commit succeeds, B must have read it.
func overtakePausedTransaction(ctx context.Context, store Store, at pausePoint) error {
	s := newScene(store)
	a, b := s.fence("A", 33), s.fence("B", 34)
	s.raise(ctx, a)
	s.write(ctx, a, "old")
	patience := s.patience(ctx)
	tx := s.begin(ctx, a, "from A", at)
	defer tx.end()
	if s.err != nil {
		return s.err
	}

	var seenByB string
	var raised error
	bDone := start(func() (err error) {
		seenByB, raised, err = s.takeOver(ctx, b)
		return err
	})
	select {
	case err := <-bDone:
		bDone = start(func() error { return err })
	case <-time.After(patience): // B waits for A
	}
	committed := tx.end()
	s.accept("read by B", await(ctx, "raise and read of B after the end of A's transaction", bDone))
	if s.err != nil {
		return s.err
	}

	final := "from A"
	switch {
	case committed == nil && raised == nil && seenByB != "from A":
		s.failf("A committed under token 33 although B had raised 34 and read %q: B's next write would lose A's", seenByB)
	case committed != nil && !errors.Is(committed, guard.ErrStale):
		s.failf("the end of A's transaction: got error: %w, want none or %w", committed, guard.ErrStale)
	case committed != nil && raised != nil:
		s.failf("A was refused (%w) by a raise of B that failed: %w", committed, raised)
	case committed != nil && seenByB != "old":
		s.failf("B read %q, which A wrote in a transaction that was refused: %w", seenByB, committed)
	case committed != nil:
		final = "old"
	case raised != nil:
		s.refuse("raise of B while A's transaction ran", raised, guard.ErrBlocked)
		s.holds(ctx, a, final)
		s.raise(ctx, b)
	}
	s.holds(ctx, b, final)
	s.write(ctx, b, "from B")
	s.writeIsStale(ctx, a, b)
	s.holds(ctx, b, "from B")
	return s.err
}

// takeOver is what a new holder does first: raise, then read.
func (s *scene) takeOver(ctx context.Context, f guard.Fence) (seen string, raised, err error) {
	if raised = s.Raise(ctx, f); raised != nil {
		return "", raised, nil
	}
	seen, err = s.get(ctx, s.key("k"), f)
	return seen, nil, err
}

// patience is how long a check watches something that should be waiting before
// it takes the wait for granted: many times what the store needs for it when
// nothing is in the way. A store that is slower than that passes without having
// been tried; it does not fail for it.
func (s *scene) patience(ctx context.Context) time.Duration {
	const least, most, factor = 50 * time.Millisecond, 5 * time.Second, 10
	began := time.Now()
	rehearsals := make([]<-chan error, 3) // at the same time, so that the connections are open afterwards
	for i := range rehearsals {
		f := s.of(fmt.Sprintf("rehearsal %d", i), "A", 1)
		rehearsals[i] = start(func() error {
			_, raised, err := s.takeOver(ctx, f)
			if errors.Is(raised, guard.ErrBlocked) { // by another rehearsal, in a store that runs one transaction at a time
				raised = nil
			}
			return errors.Join(raised, err)
		})
	}
	for _, done := range rehearsals {
		s.accept("raise and read", await(ctx, "raise and read", done))
	}
	return min(max(least, factor*time.Since(began)), most)
}

// S5: a raise that waited in vain is as if it had never been: the old holder goes
// on, and the resource can still be raised.
func blockedRaiseLeavesNoTrace(ctx context.Context, store Store) error {
	s := newScene(store)
	a, b := s.fence("A", 33), s.fence("B", 34)
	s.raise(ctx, a)
	s.write(ctx, a, "old")
	patience := s.patience(ctx)
	tx := s.begin(ctx, a, "from A", beforeCommit)
	defer tx.end()
	if s.err != nil {
		return s.err
	}

	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := await(ctx, "raise of B with a context that has ended", start(func() error { return s.Raise(short, b) }))
	switch {
	case err == nil:
		return s.raisedOverTransaction(ctx, a, b, tx.end())
	case !errors.Is(err, guard.ErrBlocked) && !errors.Is(err, context.DeadlineExceeded):
		s.failf("raise of B while A's transaction runs: got error: %w, want %w or the context's", err, guard.ErrBlocked)
	}

	// A raise that still stands in the queue would keep this one out. A store
	// that runs one transaction at a time will only run it after the first.
	second := start(func() error { return s.put(ctx, s.key("k2"), "second of A", a) })
	select {
	case err := <-second:
		second = start(func() error { return err })
	case <-time.After(time.Second + patience):
	}
	s.accept("commit of A after the raise of B had ended", tx.end())
	s.accept("another write of A after the raise of B had ended", await(ctx, "another write of A", second))
	s.writeIsRefused(ctx, b, guard.ErrNotRaised)
	s.holds(ctx, a, "from A")
	s.keyHolds(ctx, a, "k2", "second of A")
	s.raise(ctx, b)
	s.holds(ctx, b, "from A")
	s.writeIsStale(ctx, a, b)
	return s.err
}

// raisedOverTransaction is how a store must go on that lets a raise through while
// an earlier transaction runs.
func (s *scene) raisedOverTransaction(ctx context.Context, a, b guard.Fence, committed error) error {
	s.refuse("commit of A after B had raised", committed, guard.ErrStale)
	s.holds(ctx, b, "old")
	s.writeIsStale(ctx, a, b)
	return s.err
}

// A pausedTx is a transaction that stands still until it is told to end.
type pausedTx struct {
	resume  chan struct{}
	once    sync.Once
	outcome func() error
}

// begin starts a transaction that writes value, and returns when it has reached
// the point at which it pauses.
func (s *scene) begin(ctx context.Context, f guard.Fence, value string, at pausePoint) *pausedTx {
	tx := &pausedTx{resume: make(chan struct{})}
	if s.err != nil {
		tx.outcome = func() error { return nil }
		return tx
	}
	paused, pausedOnce := make(chan struct{}), sync.Once{}
	done := start(func() error {
		return s.Update(guard.NewContext(ctx, f), func(ctx context.Context, t Tx) error {
			if at == beforeCommit {
				if err := t.Put(ctx, s.key("k"), value); err != nil {
					return err
				}
			} else if _, _, err := t.Get(ctx, s.key("k")); err != nil {
				return err
			}
			pausedOnce.Do(func() { close(paused) })
			<-tx.resume
			if at == beforeWrite {
				return t.Put(ctx, s.key("k"), value)
			}
			return nil
		})
	})
	tx.outcome = sync.OnceValue(func() error { return await(ctx, "the end of A's transaction", done) })
	select {
	case <-paused:
	case <-ctx.Done():
		s.failf("A's transaction did not begin: %w", context.Cause(ctx))
	case err := <-done:
		tx.outcome = func() error { return err }
		s.failf("A's transaction ended before its write: %w", orNil(err))
	}
	return tx
}

// end lets the transaction go on and returns how it ended.
func (tx *pausedTx) end() error {
	tx.once.Do(func() { close(tx.resume) })
	return tx.outcome()
}

// A context that has ended is refused at once, and leaves nothing.
func deadContextReturnsAtOnce(ctx context.Context, store Store) error {
	s := newScene(store)
	a, b := s.fence("A", 33), s.fence("B", 34)
	dead, cancel := context.WithCancel(ctx)
	cancel()
	s.refuse("raise with a dead context", s.Raise(dead, a), context.Canceled)
	s.writeIsRefused(ctx, a, guard.ErrNotRaised)
	s.raise(ctx, a)
	s.write(ctx, a, "old")
	s.refuse("write with a dead context", s.put(dead, s.key("k"), "from the dead", a), context.Canceled)
	s.holds(ctx, a, "old")

	tx := s.begin(ctx, a, "from A", beforeCommit)
	defer tx.end()
	if s.err != nil {
		return s.err
	}
	err := await(ctx, "raise with a dead context while a transaction runs", start(func() error { return s.Raise(dead, b) }))
	s.refuse("raise with a dead context while a transaction runs", err, context.Canceled)
	s.accept("commit after a dead raise", tx.end())
	s.writeIsRefused(ctx, b, guard.ErrNotRaised)
	s.holds(ctx, a, "from A")

	// The context ends in the middle of a transaction: it is as if fn had failed.
	middle, cancelMiddle := context.WithCancel(ctx)
	defer cancelMiddle()
	err = s.Update(guard.NewContext(middle, a), func(ctx context.Context, tx Tx) error {
		if err := tx.Put(ctx, s.key("k"), "from the dying"); err != nil {
			return err
		}
		cancelMiddle()
		return fmt.Errorf("fn gave up: %w", ctx.Err())
	})
	s.refuse("update whose context ended", err, context.Canceled)
	s.raise(ctx, b)
	s.holds(ctx, b, "from A")
	return s.err
}
