package sequencertest

import (
	"context"

	"github.com/go-fencing/fencing/sequencer"
)

// Failing returns the names of the checks that a sequencer fails.
func Failing(ctx context.Context, open func() sequencer.Sequencer) map[string]error {
	failed := make(map[string]error)
	for _, c := range checks {
		if err := c.run(ctx, open()); err != nil {
			failed[c.name] = err
		}
	}
	return failed
}
