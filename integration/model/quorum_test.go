package model_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/integration/model"
)

func TestQuorumTokensGrowInEveryInterleaving(t *testing.T) {
	t.Parallel()
	r := model.Quorum{Promise: model.CompareAndSet}.Run()
	t.Logf("%d states, %d steps, depth %d", r.States, r.Steps, r.Depth)
	require.NoError(t, r.Violation, quorumHistory(r))
	require.Greater(t, r.States, 10_000, "the model has hardly any states, so it shows nothing")
}

func TestBrokenQuorumsHandOutATokenTwice(t *testing.T) {
	t.Parallel()
	for name, promise := range map[string]func(model.Node, int, uint8) bool{
		"blind Redlock write-back":      model.Blind,
		"write-back of the holder only": model.HolderOnly,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := model.Quorum{Promise: promise}.Run()
			require.ErrorIs(t, r.Violation, model.ErrDuplicate, "%d states were visited", r.States)
			text := quorumHistory(r)
			t.Logf("after %d states:\n%s", r.States, text)
			golden(t, name, text)
		})
	}
}

func quorumHistory(r model.Result[model.QuorumState]) string {
	var b strings.Builder
	for i, l := range r.History {
		if i > 0 {
			fmt.Fprintf(&b, "%2d  %-50s %v\n", i, l.Step.Who+" "+l.Step.What, l.State)
		}
	}
	fmt.Fprintf(&b, "=> %v\n", r.Violation)
	return b.String()
}
