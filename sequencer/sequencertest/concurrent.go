package sequencertest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sequencer"
)

const (
	callers = 8
	rounds  = 25
)

func concurrent(ctx context.Context, s sequencer.Sequencer) error {
	return contend(ctx, s, func(guard.Token) guard.Token { return 0 })
}

func concurrentRepairs(ctx context.Context, s sequencer.Sequencer) error {
	return contend(ctx, s, func(seen guard.Token) guard.Token { return seen + 5 })
}

// contend lets callers race for one resource. Every token is handed out once, and
// is greater than each one that was handed out before its call began.
func contend(ctx context.Context, s sequencer.Sequencer, after func(seen guard.Token) guard.Token) error {
	var (
		greatest atomic.Int64 // of the tokens that some caller has
		mu       sync.Mutex
		owners   = map[guard.Token]int{}
		failure  error
		wg       sync.WaitGroup
	)
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if failure == nil {
			failure = err
		}
	}
	for caller := range callers {
		wg.Go(func() {
			for range rounds {
				seen := guard.Token(greatest.Load())
				asked := after(seen)
				token, err := s.Next(ctx, resource, asked)
				if err != nil {
					fail(fmt.Errorf("Next(%q, %d) by %d callers: %w", resource, asked, callers, err))
					return
				}
				if token <= max(seen, asked) {
					fail(fmt.Errorf("Next(%q, %d) = %d, though token %d was handed out before it was called", resource, asked, token, seen))
				}
				mu.Lock()
				other, taken := owners[token]
				owners[token] = caller
				mu.Unlock()
				if taken {
					fail(fmt.Errorf("callers %d and %d were handed the same token %d", other, caller, token))
				}
				for old := greatest.Load(); int64(token) > old && !greatest.CompareAndSwap(old, int64(token)); {
					old = greatest.Load()
				}
			}
		})
	}
	wg.Wait()
	return failure
}
