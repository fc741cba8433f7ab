package guard_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

// TestRules is the protocol as a table: what stands in the store, what comes, and
// whether it may be raised and entered.
func TestRules(t *testing.T) {
	t.Parallel()
	const most = guard.Token(9223372036854775807)
	renamed := fence("a", 33)
	renamed.Holder = "worker-a after a restart"
	for name, c := range map[string]struct {
		current guard.Fence
		comes   guard.Fence
		raise   error
		enter   error
	}{
		"no fence yet":                     {guard.Fence{}, fence("a", 33), nil, guard.ErrNotRaised},
		"the zero fence, no fence yet":     {guard.Fence{}, guard.Fence{}, nil, guard.ErrNotRaised},
		"negative token, no fence yet":     {guard.Fence{}, fence("a", -1), nil, guard.ErrNotRaised},
		"the current fence again (S22)":    {fence("a", 33), fence("a", 33), nil, nil},
		"the holder's label has no part":   {fence("a", 33), renamed, nil, nil},
		"a greater token":                  {fence("a", 33), fence("b", 34), nil, guard.ErrNotRaised},
		"a greater token, same nonce":      {fence("a", 33), fence("a", 34), nil, guard.ErrNotRaised},
		"a smaller token (S1)":             {fence("b", 34), fence("a", 33), guard.ErrStale, guard.ErrStale},
		"a smaller token, same nonce":      {fence("a", 34), fence("a", 33), guard.ErrStale, guard.ErrStale},
		"the same token twice (S9)":        {fence("a", 33), fence("b", 33), guard.ErrConflict, guard.ErrConflict},
		"greater by one above 2^53 (S16)":  {fence("a", 1<<53), fence("b", 1<<53+1), nil, guard.ErrNotRaised},
		"smaller by one above 2^53 (S16)":  {fence("b", 1<<53+1), fence("a", 1<<53), guard.ErrStale, guard.ErrStale},
		"the last token":                   {fence("a", most-1), fence("b", most), nil, guard.ErrNotRaised},
		"nothing comes after the last":     {fence("b", most), fence("a", most-1), guard.ErrStale, guard.ErrStale},
		"the zero fence against a current": {fence("a", 33), guard.Fence{}, guard.ErrStale, guard.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := guard.Record{Fence: c.current, Since: raisedAt}
			for _, answer := range []struct {
				rule      string
				got, want error
			}{{"raise", r.Raise(c.comes), c.raise}, {"enter", r.Enter(c.comes), c.enter}} {
				if answer.want == nil {
					require.NoError(t, answer.got, answer.rule)
					continue
				}
				require.ErrorIs(t, answer.got, answer.want, answer.rule)
				if stale, ok := errors.AsType[*guard.StaleError](answer.got); ok {
					require.Equal(t, guard.StaleError{Held: c.comes, Current: c.current, Since: raisedAt}, *stale)
					require.Equal(t, c.comes.Token == c.current.Token, errors.Is(answer.got, guard.ErrConflict))
				}
				if notRaised, ok := errors.AsType[*guard.NotRaisedError](answer.got); ok {
					require.Equal(t, guard.NotRaisedError{Held: c.comes, Current: c.current}, *notRaised)
				}
			}
		})
	}
}

func TestAdmitRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		row, token guard.Token
		want       bool
	}{
		"a row that no one has stamped":      {0, 33, true},
		"the holder's own row again":         {33, 33, true},
		"a row of an earlier holder":         {32, 33, true},
		"a row of a later holder":            {34, 33, false},
		"a row of a later holder above 2^53": {1<<53 + 1, 1 << 53, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, guard.AdmitRow(c.row, c.token))
		})
	}
}
