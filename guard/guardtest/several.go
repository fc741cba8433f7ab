package guardtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-fencing/fencing/guard"
)

// S35: transactions of several fences while those fences are raised again and
// again. Taken in an unordered way, two of them and two raises wait for each
// other in a circle.
func severalFencesDoNotDeadlock(ctx context.Context, store Store) error {
	const workers, rounds = 4, 25
	s := newScene(store)
	fences := []guard.Fence{s.of("p", "A", 33), s.of("q", "A", 7), s.of("r", "A", 34)}
	for _, f := range fences {
		s.raise(ctx, f)
	}
	if s.err != nil {
		return s.err
	}

	errs := make(chan error, workers+len(fences))
	var group sync.WaitGroup
	for w := range workers {
		order := slices.Clone(fences)
		if w%2 == 1 {
			slices.Reverse(order)
		}
		group.Go(func() {
			for i := range rounds {
				if err := s.put(ctx, s.key(fmt.Sprintf("k%d", w)), fmt.Sprint(i), order...); err != nil {
					errs <- fmt.Errorf("transaction of %d fences: %w", len(order), err)
					return
				}
			}
		})
	}
	for _, f := range fences {
		group.Go(func() {
			for range rounds {
				if err := s.Raise(ctx, f); err != nil && !errors.Is(err, guard.ErrBlocked) {
					errs <- fmt.Errorf("raise %v again: %w", f, err)
					return
				}
			}
		})
	}
	err := await(ctx, "transactions of several fences", start(func() error {
		group.Wait()
		close(errs)
		return <-errs
	}))
	s.accept("several fences", err)
	for w := range workers {
		s.keyHolds(ctx, fences[w%len(fences)], fmt.Sprintf("k%d", w), fmt.Sprint(rounds-1))
	}
	return s.err
}

// One bad fence among several refuses the transaction, wherever it stands in the
// order, and none of the writes is done.
func severalFencesAreAllOrNothing(ctx context.Context, store Store) error {
	s := newScene(store)
	for bad := range 3 {
		fences := make([]guard.Fence, 3)
		for i := range fences {
			fences[i] = s.of(fmt.Sprintf("%d-%d", bad, i), "A", guard.Token(33+i))
			s.raise(ctx, fences[i])
		}
		good := slices.Delete(slices.Clone(fences), bad, bad+1)

		s.writeAll(ctx, "before", fences, nil)
		notRaised := slices.Clone(fences)
		notRaised[bad] = s.of(fmt.Sprintf("%d-unknown", bad), "A", 33)
		s.writeAll(ctx, "with a fence that was not raised", notRaised, func(err error) {
			s.refuse("transaction with one fence that was not raised", err, guard.ErrNotRaised)
		})
		s.allHold(ctx, "before", good)

		newer := fences[bad]
		newer = s.of(fmt.Sprintf("%d-%d", bad, bad), "B", newer.Token+1)
		s.raise(ctx, newer)
		s.writeAll(ctx, "with a stale fence", fences, func(err error) {
			s.refuseStale("transaction with one stale fence", err, fences[bad], newer)
		})
		s.allHold(ctx, "before", good)
		s.writeAll(ctx, "without the stale fence", good, nil)
		s.allHold(ctx, "without the stale fence", good)
	}
	return s.err
}

// writeAll writes three keys in one transaction under fences and hands a refusal
// to refused; nil means that there must be none.
func (s *scene) writeAll(ctx context.Context, value string, fences []guard.Fence, refused func(error)) {
	if s.err != nil {
		return
	}
	err := s.Update(guard.NewContext(ctx, fences...), func(ctx context.Context, tx Tx) error {
		for i := range 3 {
			if err := tx.Put(ctx, s.key(fmt.Sprintf("all%d", i)), value); err != nil {
				return err
			}
		}
		return nil
	})
	if refused == nil {
		s.accept(fmt.Sprintf("transaction of %d fences", len(fences)), err)
	} else {
		refused(err)
	}
}

func (s *scene) allHold(ctx context.Context, value string, good []guard.Fence) {
	for i := range 3 {
		s.keyHolds(ctx, good[0], fmt.Sprintf("all%d", i), value)
	}
}
