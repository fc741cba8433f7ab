package guard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

func TestObserverIsToldOfEvents(t *testing.T) {
	t.Parallel()
	var got []guard.Event
	observer := guard.Observer(func(e guard.Event) { got = append(got, e) })
	sent := guard.Event{Kind: guard.EventRaised, Fence: fence("a", 33), Took: time.Millisecond, Err: guard.ErrStale}
	observer.Observe(sent)
	require.Equal(t, []guard.Event{sent}, got)

	require.NotPanics(t, func() { guard.Observer(nil).Observe(sent) }, "no observer is the normal case")
}

func TestEventKindsHaveTheirNames(t *testing.T) {
	t.Parallel()
	for kind, want := range map[guard.EventKind]string{
		0: "unknown", guard.EventWaited: "waited", guard.EventAcquired: "acquired", guard.EventRaised: "raised", guard.EventRepaired: "repaired",
		guard.EventRenewed: "renewed", guard.EventRefused: "refused", guard.EventLost: "lost", guard.EventReleased: "released",
		guard.EventReleased + 1: "unknown", 255: "unknown",
	} {
		require.Equal(t, want, kind.String())
	}
}
