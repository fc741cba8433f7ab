package sequencer_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sequencer"
	"github.com/go-fencing/fencing/sequencer/sequencertest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	sequencertest.Run(t, func(t *testing.T) sequencer.Sequencer {
		s, err := sequencer.NewMemory()
		require.NoError(t, err)
		return s
	})
}

func TestNewMemoryRefusesNonsense(t *testing.T) {
	t.Parallel()
	_, err := sequencer.NewMemory(sequencer.WithMaxJump(0))
	require.ErrorContains(t, err, "greatest jump 0 is not positive")
	_, err = sequencer.NewMemory(nil)
	require.ErrorContains(t, err, "option is nil")
}

func TestS18_TheBoundOfAJumpIsConfigurable(t *testing.T) {
	t.Parallel()
	s, err := sequencer.NewMemory(sequencer.WithMaxJump(10))
	require.NoError(t, err)
	_, err = s.Next(t.Context(), "order:1", 11)
	require.ErrorIs(t, err, sequencer.ErrJump)
	require.ErrorContains(t, err, `sequencer: next "order:1": a token above 11 is asked for, more than 10 ahead of the counter at 0`)
	token, err := s.Next(t.Context(), "order:1", 10)
	require.NoError(t, err)
	require.EqualValues(t, 11, token)
}

func TestAdvance(t *testing.T) {
	t.Parallel()
	const top = math.MaxInt64
	for _, c := range []struct {
		last, after, maxJump, want guard.Token
		is                         error
	}{
		{last: 0, after: 0, maxJump: 1, want: 1},
		{last: 7, after: 0, maxJump: 1, want: 8},
		{last: 7, after: 7, maxJump: 1, want: 8},
		{last: 7, after: 8, maxJump: 1, want: 9},
		{last: 7, after: 9, maxJump: 1, is: sequencer.ErrJump},
		{last: 0, after: sequencer.DefaultMaxJump, maxJump: sequencer.DefaultMaxJump, want: sequencer.DefaultMaxJump + 1},
		{last: 0, after: sequencer.DefaultMaxJump + 1, maxJump: sequencer.DefaultMaxJump, is: sequencer.ErrJump},
		{last: 0, after: top, maxJump: top, is: sequencer.ErrExhausted},
		{last: 0, after: top - 1, maxJump: top, want: top},
		{last: top, after: 0, maxJump: top, is: sequencer.ErrExhausted},
		{last: top - 1, after: top, maxJump: 1, is: sequencer.ErrExhausted},
		{last: top - 1, after: 3, maxJump: 1, want: top},
	} {
		token, err := sequencer.Advance(c.last, c.after, c.maxJump)
		require.ErrorIs(t, err, c.is, "%+v", c)
		require.Equal(t, c.want, token, "%+v", c)
	}
}

func ExampleNewMemory() {
	s, err := sequencer.NewMemory()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, after := range []guard.Token{0, 0, 40} { // 40: a store says that it has seen this one
		token, err := s.Next(context.Background(), "inventory:sku-42", after)
		fmt.Println(token, err)
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 41 <nil>
}
