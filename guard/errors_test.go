package guard_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

var raisedAt = time.Date(2026, time.March, 4, 5, 6, 7, 80_000_000, time.FixedZone("CET", 3600))

func TestStaleErrorSaysWhoWhenAndWhatToDo(t *testing.T) {
	t.Parallel()
	err := &guard.StaleError{Held: fence("a", 33), Current: fence("b", 34), Since: raisedAt}
	require.EqualError(t, err, `guard: fence of "inventory:sku-42" is stale: worker-a holds token 33, superseded by token 34 of worker-b `+
		`since 2026-03-04T04:06:07.08Z; nothing was written, stop this work and acquire the lock again`)
	require.NotContains(t, err.Error(), "nonce-", "a nonce lets its reader act as the holder")
}

func TestStaleErrorSaysOnlyWhatTheStoreKnows(t *testing.T) {
	t.Parallel()
	held := fence("a", 33)
	held.Holder = ""
	err := &guard.StaleError{Held: held, Current: guard.Fence{Token: 34}}
	require.EqualError(t, err, `guard: fence of "inventory:sku-42" is stale: an unnamed holder holds token 33, superseded by token 34`+
		`; nothing was written, stop this work and acquire the lock again`)
}

func TestS9_ConflictSaysThatTheTokenWasHandedOutTwice(t *testing.T) {
	t.Parallel()
	err := &guard.StaleError{Held: fence("a", 33), Current: fence("b", 33), Since: raisedAt}
	require.EqualError(t, err, `guard: token 33 of "inventory:sku-42" was handed out twice: worker-a holds token 33, superseded by token 33 of worker-b `+
		`since 2026-03-04T04:06:07.08Z; nothing was written, stop this work and acquire the lock again`)
}

func TestNotRaisedErrorSaysWhatTheStoreHasAndWhatToDo(t *testing.T) {
	t.Parallel()
	err := &guard.NotRaisedError{Held: fence("a", 33)}
	require.EqualError(t, err, `guard: fence of "inventory:sku-42" is not raised: worker-a holds token 33, but the store has no fence of it; `+
		`nothing was written, raise the fence in this database first (give the guard to the locker with lock.WithGuards)`)

	err.Current = fence("b", 32)
	require.ErrorContains(t, err, "worker-a holds token 33, but the store is at token 32; nothing was written")
}

func TestErrorsHaveOneMeaningEach(t *testing.T) {
	t.Parallel()
	sentinels := map[string]error{
		"ErrStale": guard.ErrStale, "ErrConflict": guard.ErrConflict, "ErrNotRaised": guard.ErrNotRaised, "ErrNoFence": guard.ErrNoFence,
		"ErrBlocked": guard.ErrBlocked, "ErrCommitUnknown": guard.ErrCommitUnknown, "ErrInvalid": guard.ErrInvalid,
	}
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"superseded":        {&guard.StaleError{Held: fence("a", 33), Current: fence("b", 34)}, []string{"ErrStale"}},
		"equal token":       {&guard.StaleError{Held: fence("a", 33), Current: fence("b", 33)}, []string{"ErrStale", "ErrConflict"}},
		"not raised":        {&guard.NotRaisedError{Held: fence("a", 33)}, []string{"ErrNotRaised"}},
		"earlier fence":     {&guard.NotRaisedError{Held: fence("a", 33), Current: fence("b", 32)}, []string{"ErrNotRaised"}},
		"invalid fence":     {guard.Fence{}.Validate(), []string{"ErrInvalid"}},
		"invalid resource":  {guard.ValidateResource(""), []string{"ErrInvalid"}},
		"bare ErrStale":     {guard.ErrStale, []string{"ErrStale"}},
		"bare ErrConflict":  {guard.ErrConflict, []string{"ErrConflict"}},
		"bare ErrNotRaised": {guard.ErrNotRaised, []string{"ErrNotRaised"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrapped := fmt.Errorf("sell: %w", c.err)
			var got []string
			for sentinel, target := range sentinels {
				if errors.Is(wrapped, target) {
					got = append(got, sentinel)
				}
			}
			require.ElementsMatch(t, c.want, got)
		})
	}
}

func TestErrorsCarryTheirFactsThroughWrapping(t *testing.T) {
	t.Parallel()
	wrapped := fmt.Errorf("sell: %w", &guard.StaleError{Held: fence("a", 33), Current: fence("b", 34), Since: raisedAt})
	stale, ok := errors.AsType[*guard.StaleError](wrapped)
	require.True(t, ok)
	require.Equal(t, guard.StaleError{Held: fence("a", 33), Current: fence("b", 34), Since: raisedAt}, *stale)
}
