package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

func recorder() (guard.Observer, *[]guard.Event) {
	got := &[]guard.Event{}
	return func(e guard.Event) { *got = append(*got, e) }, got
}

func TestObserverIsToldOfEvents(t *testing.T) {
	t.Parallel()
	observer, got := recorder()
	sent := guard.Event{Kind: guard.EventRaised, Fence: fence("a", 33), Took: time.Millisecond, Err: guard.ErrStale, Context: t.Context()}
	observer.Observe(sent)
	require.Equal(t, []guard.Event{sent}, *got)

	observer.Observe(guard.Event{})
	require.NotNil(t, (*got)[1].Context, "an observer may rely on it")
}

func TestNoObserverIsTheNormalCase(t *testing.T) {
	t.Parallel()
	none := guard.Observer(nil)
	require.NotPanics(t, func() {
		none.Observe(guard.Event{})
		none.Raised(t.Context(), fence("a", 33), time.Second, nil)
		none.Refused(t.Context(), guard.ErrNoFence)
		none.Committed(t.Context(), nil)
	})
}

func TestObserversAreToldInOrder(t *testing.T) {
	t.Parallel()
	var got []string
	named := func(name string) guard.Observer {
		return func(e guard.Event) { got = append(got, name+" "+e.Kind.String()) }
	}
	guard.Observers(named("a"), nil, named("b")).Observe(guard.Event{Kind: guard.EventLost})
	require.Equal(t, []string{"a lost", "b lost"}, got)
	guard.Observers(nil, named("c")).Observe(guard.Event{Kind: guard.EventRaised})
	require.Equal(t, []string{"a lost", "b lost", "c raised"}, got)
	require.Nil(t, guard.Observers())
	require.Nil(t, guard.Observers(nil, nil), "whoever asks whether there is an observer is not to be misled")
}

func TestEveryEventKindHasItsName(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for _, kind := range guard.EventKinds() {
		require.NotEmpty(t, kind.String(), "kind %d", kind)
		require.NotEqual(t, "unknown", kind.String())
		names[kind.String()] = true
	}
	require.Len(t, names, len(guard.EventKinds()))
	for kind, want := range map[guard.EventKind]string{
		0: "unknown", guard.EventWaited: "waited", guard.EventAcquired: "acquired", guard.EventRaised: "raised", guard.EventRepaired: "repaired",
		guard.EventRenewed: "renewed", guard.EventCommitted: "committed", guard.EventRefused: "refused", guard.EventUnguarded: "unguarded",
		guard.EventLost: "lost", guard.EventReleased: "released", guard.EventReleased + 1: "unknown", 255: "unknown",
	} {
		require.Equal(t, want, kind.String())
	}
}

func TestRaiseIsToldByTheLockerOrByTheGuard(t *testing.T) {
	t.Parallel()
	observer, got := recorder()
	a := fence("a", 33)
	observer.Raised(t.Context(), a, time.Second, nil)
	observer.Raised(t.Context(), a, time.Second, guard.ErrBlocked)
	require.Equal(t, []guard.Event{
		{Kind: guard.EventRaised, Fence: a, Took: time.Second, Context: t.Context()},
		{Kind: guard.EventRefused, Fence: a, Took: time.Second, Err: guard.ErrBlocked, Context: t.Context()},
	}, *got)
	observer.Raised(guard.Observed(t.Context()), a, time.Second, nil)
	require.Len(t, *got, 2, "who called it tells of it")
}

func TestRefusalNamesItsFence(t *testing.T) {
	t.Parallel()
	observer, got := recorder()
	a := fence("a", 33)
	for _, err := range []error{&guard.StaleError{Held: a}, fmt.Errorf("write: %w", &guard.NotRaisedError{Held: a}), guard.ErrNoFence} {
		observer.Refused(t.Context(), err)
	}
	require.Equal(t, a, (*got)[0].Fence)
	require.Equal(t, a, (*got)[1].Fence)
	require.Equal(t, guard.Event{Kind: guard.EventRefused, Err: guard.ErrNoFence, Context: t.Context()}, (*got)[2])
}

// A lease until a fixed time.
type until time.Time

func (u until) Deadline() time.Time { return time.Time(u) }

func TestCommitTellsWhatIsLeftOfTheLease(t *testing.T) {
	t.Parallel()
	observer, got := recorder()
	a, b := fence("a", 33), guard.Fence{Resource: "other", Token: 1, Nonce: "n"}
	observer.Committed(t.Context(), []guard.Fence{a})
	require.Empty(t, *got, "nothing is known of a lease")

	ctx := guard.WithDeadline(t.Context(), until(time.Now().Add(-time.Minute)))
	observer.Committed(ctx, []guard.Fence{a})
	observer.Committed(ctx, []guard.Fence{a, b})
	require.Len(t, *got, 2)
	require.Equal(t, guard.EventCommitted, (*got)[0].Kind)
	require.Equal(t, a, (*got)[0].Fence)
	require.LessOrEqual(t, (*got)[0].Remaining, -time.Minute, "negative if it overran")
	require.Equal(t, ctx, (*got)[0].Context)
	require.Zero(t, (*got)[1].Fence, "of several fences none is the one")
}

func TestDeadlineIsThatOfTheFirstLeaseToEnd(t *testing.T) {
	t.Parallel()
	_, ok := guard.Deadline(t.Context())
	require.False(t, ok)
	soon, late := time.Now().Add(time.Second), time.Now().Add(time.Hour)
	for _, order := range [][]time.Time{{soon, late}, {late, soon}, {late, soon, late}} {
		ctx := t.Context()
		for _, d := range order {
			ctx = guard.WithDeadline(ctx, until(d))
		}
		got, ok := guard.Deadline(ctx)
		require.True(t, ok)
		require.Equal(t, soon, got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, ok = guard.Deadline(ctx)
	require.False(t, ok, "the deadline of a context is another thing")
}

// Both of slog's handlers would take the text form, which has the nonce.
func TestFenceIsLoggedWithoutItsNonce(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	f := guard.Fence{Resource: "r", Token: 33, Nonce: "secret-nonce", Holder: "worker-a"}
	for _, h := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		slog.New(h).Info("acquired", "fence", f)
	}
	require.Contains(t, b.String(), "fence.token=33")
	require.Contains(t, b.String(), `"fence":{"resource":"r","token":33,"holder":"worker-a"}`)
	require.NotContains(t, b.String(), f.Nonce)
}

func BenchmarkObserve(b *testing.B) {
	ctx := context.Background()
	count := 0
	counting := guard.Observer(func(guard.Event) { count++ })
	for name, o := range map[string]guard.Observer{"nil": nil, "one": counting, "three": guard.Observers(counting, counting, counting)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				o.Observe(guard.Event{Kind: guard.EventAcquired, Context: ctx, Took: time.Millisecond})
			}
		})
	}
	held := []guard.Fence{fence("a", 33)}
	lease := guard.NewContext(guard.WithDeadline(ctx, until(time.Now().Add(time.Hour))), held...)
	for name, o := range map[string]guard.Observer{"nil": nil, "one": counting} {
		b.Run("commit/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				o.Committed(lease, held)
			}
		})
	}
}
