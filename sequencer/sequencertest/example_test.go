package sequencertest_test

import (
	"testing"

	"github.com/go-fencing/fencing/sequencer"
	"github.com/go-fencing/fencing/sequencer/sequencertest"
)

// The whole test of a sequencer.
func ExampleRun() {
	testSequencer := func(t *testing.T) { // in your package: func TestSequencer(t *testing.T)
		sequencertest.Run(t, func(t *testing.T) sequencer.Sequencer {
			s, err := sequencer.NewMemory()
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	}
	_ = testSequencer
}
