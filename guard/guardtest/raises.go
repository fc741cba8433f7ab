package guardtest

import (
	"context"
	"math"

	"github.com/go-fencing/fencing/guard"
)

// S22: the reply to a raise was lost, and the holder repeats it.
func raiseMayBeRepeated(ctx context.Context, store Store) error {
	s := newScene(store)
	a, b := s.fence("A", 33), s.fence("B", 34)
	renamed := a
	renamed.Holder = "A after a restart" // a label: it takes no part
	s.raise(ctx, a)
	s.raise(ctx, a)
	s.write(ctx, a, "from A")
	s.raise(ctx, renamed)
	s.raise(ctx, a)
	s.write(ctx, renamed, "from A, renamed")
	s.write(ctx, a, "from A")
	s.raise(ctx, b)
	if s.err == nil { // late, and no longer a repetition
		s.refuseStale("repeat the raise after another", s.Raise(ctx, a), a, b)
	}
	s.write(ctx, b, "from B")
	s.holds(ctx, b, "from B")
	return s.err
}

// S9: the sequencer forgot and handed out one token twice. The first to raise it
// has it; the other one is told so.
func tokenHandedOutTwice(ctx context.Context, store Store) error {
	s := newScene(store)
	a := s.fence("A", 33)
	b := s.fence("B", 33)
	restarted := s.fence("A", 33) // another acquisition with the label of the first
	s.raise(ctx, a)
	s.write(ctx, a, "from A")
	for _, loser := range []guard.Fence{b, restarted} {
		s.raiseIsStale(ctx, loser, a)
		s.writeIsStale(ctx, loser, a)
		s.holds(ctx, a, "from A")
	}
	s.raise(ctx, a)
	s.write(ctx, a, "from A again")
	s.holds(ctx, a, "from A again")
	return s.err
}

// S13: the sequencer was reset and starts from 1.
func smallerTokenIsStale(ctx context.Context, store Store) error {
	s := newScene(store)
	b := s.fence("B", 34)
	s.raise(ctx, b)
	s.write(ctx, b, "from B")
	for _, token := range []guard.Token{1, 32, 33} {
		a := s.fence("A", token)
		s.raiseIsStale(ctx, a, b)
		s.writeIsStale(ctx, a, b)
	}
	sameNonce := b
	sameNonce.Token = 33
	s.raiseIsStale(ctx, sameNonce, b)
	s.writeIsStale(ctx, sameNonce, b)
	s.write(ctx, b, "from B again")
	s.holds(ctx, b, "from B again")
	repaired := s.fence("A", 35)
	s.raise(ctx, repaired)
	s.write(ctx, repaired, "from A")
	s.writeIsStale(ctx, b, repaired)
	return s.err
}

// S16: above 2^53 a float64, and so a Lua or a JavaScript number, takes
// neighbours for equal.
func hugeTokensAreExact(ctx context.Context, store Store) error {
	s := newScene(store)
	last := s.fence("A", 33)
	s.raise(ctx, last)
	for _, token := range []guard.Token{1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 53, 1<<53 + 1, 1<<53 + 2, 1<<62 + 1, math.MaxInt64 - 1, math.MaxInt64} {
		next := s.fence("B", token)
		s.raise(ctx, next)
		s.write(ctx, next, "under "+token.String())
		s.writeIsStale(ctx, last, next)
		s.raiseIsStale(ctx, last, next)
		s.holds(ctx, next, "under "+token.String())
		last = next
	}
	return s.err
}

// S46: the fences of two resources have nothing to do with each other.
func fenceOfAnotherResource(ctx context.Context, store Store) error {
	s := newScene(store)
	a, other := s.fence("A", 33), s.of("other", "B", 34)
	s.raise(ctx, a)
	s.write(ctx, a, "from A")
	s.raise(ctx, other)
	s.write(ctx, a, "from A again") // the other's greater token did not fence it
	s.raise(ctx, a)

	mislabelled := other
	mislabelled.Resource = a.Resource
	s.writeIsRefused(ctx, mislabelled, guard.ErrNotRaised)
	mislabelled.Resource = s.of("third", "", 0).Resource
	s.writeIsRefused(ctx, mislabelled, guard.ErrNotRaised)
	a34 := s.fence("C", 34)
	s.raise(ctx, a34) // equal to the other's token, and no conflict with it
	s.writeIsStale(ctx, a, a34)
	s.holds(ctx, a34, "from A again")
	return s.err
}
