package guardprom_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/guardprom"
	h "github.com/go-fencing/fencing/internal/metrics/metricstest"
	"github.com/go-fencing/fencing/lock"
)

// scrape returns all samples: the value of a counter; of a histogram its count, its
// sum and the count of its first bucket.
func scrape(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	samples := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += fmt.Sprintf("{%s=%s}", l.GetName(), l.GetValue())
			}
			if m.GetHistogram() == nil {
				samples[name] = m.GetCounter().GetValue()
				continue
			}
			samples[name+" count"] = float64(m.GetHistogram().GetSampleCount())
			samples[name+" sum"] = m.GetHistogram().GetSampleSum()
			samples[name+" first"] = float64(m.GetHistogram().GetBucket()[0].GetCumulativeCount())
		}
	}
	return samples
}

func newObserver(t testing.TB, reg prometheus.Registerer) guard.Observer {
	t.Helper()
	o, err := guardprom.New(reg)
	require.NoError(t, err)
	return o
}

func TestHistoryIsCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	h.Play(t, t.Context(), newObserver(t, reg), func() {})
	got := scrape(t, reg)
	for name, want := range map[string]float64{
		"fencing_acquisitions_total{outcome=ok}":           h.Acquisitions,
		"fencing_lock_wait_seconds count":                  h.Waits,
		"fencing_lock_wait_seconds sum":                    (h.FirstWait + h.SecondWait).Seconds(),
		"fencing_lock_waits_given_up_total":                h.WaitsGivenUp,
		"fencing_raise_wait_seconds count":                 h.Raises, // on the bubble's clock the refused one took no time
		"fencing_rejections_total{reason=stale}":           h.RefusedRaises + h.RefusedWrites,
		"fencing_rejections_total{reason=conflict}":        0,
		"fencing_sequencer_regressions_total":              h.Regressions,
		"fencing_renewals_total{outcome=ok}":               h.Renewals,
		"fencing_lease_remaining_at_commit_seconds count":  h.Commits,
		"fencing_lease_remaining_at_commit_seconds first":  0,
		"fencing_leases_lost_total":                        h.Lost,
		"fencing_releases_total{outcome=ok}":               h.Released,
		"fencing_releases_total{outcome=lost}":             h.ReleasedLost,
		"fencing_lease_remaining_at_release_seconds count": h.Released + h.ReleasedLost,
		"fencing_lease_remaining_at_release_seconds first": h.ReleasedLost,
		"fencing_unguarded_writes_total":                   0,
	} {
		require.Contains(t, got, name)
		require.InDelta(t, want, got[name], 0.01, name)
	}
}

// A new kind of event must not be forgotten here.
func TestEveryKindOfEventChangesAMetric(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	o := newObserver(t, reg)
	for _, kind := range guard.EventKinds() {
		before := scrape(t, reg)
		o.Observe(guard.Event{Kind: kind, Took: time.Second, Remaining: time.Second})
		require.NotEqual(t, before, scrape(t, reg), "%s", kind)
	}
	before := scrape(t, reg)
	o.Observe(guard.Event{})
	require.Equal(t, before, scrape(t, reg))
}

// The sum of a histogram is a counter: it must not fall.
func TestLeaseThatOverranHadNothingLeft(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	newObserver(t, reg).Observe(guard.Event{Kind: guard.EventReleased, Remaining: -time.Hour})
	got := scrape(t, reg)
	require.InDelta(t, 1, got["fencing_lease_remaining_at_release_seconds first"], 0)
	require.InDelta(t, 0, got["fencing_lease_remaining_at_release_seconds sum"], 0)
}

func TestErrorsHaveTheirSeries(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	o := newObserver(t, reg)
	held := guard.Fence{Resource: "r", Token: 1}
	for _, c := range []struct {
		kind   guard.EventKind
		err    error
		series string
	}{
		{guard.EventRefused, &guard.StaleError{Held: held, Current: guard.Fence{Token: 2}}, "fencing_rejections_total{reason=stale}"},
		{guard.EventRefused, &guard.StaleError{Held: held, Current: held}, "fencing_rejections_total{reason=conflict}"},
		{guard.EventRefused, &guard.NotRaisedError{Held: held}, "fencing_rejections_total{reason=not_raised}"},
		{guard.EventRefused, guard.ErrNoFence, "fencing_rejections_total{reason=no_fence}"},
		{guard.EventRefused, guard.ErrBlocked, "fencing_rejections_total{reason=blocked}"},
		{guard.EventRefused, guard.ErrCommitUnknown, "fencing_rejections_total{reason=commit_unknown}"},
		{guard.EventRefused, guard.ErrUnguarded, "fencing_rejections_total{reason=unguarded}"},
		{guard.EventRefused, errors.New("connection refused"), "fencing_rejections_total{reason=other}"},
		{guard.EventRenewed, nil, "fencing_renewals_total{outcome=ok}"},
		{guard.EventRenewed, lock.ErrLost, "fencing_renewals_total{outcome=lost}"},
		{guard.EventRenewed, errors.New("timeout"), "fencing_renewals_total{outcome=failed}"},
		{guard.EventReleased, nil, "fencing_releases_total{outcome=ok}"},
		{guard.EventReleased, &lock.LostError{}, "fencing_releases_total{outcome=lost}"},
		{guard.EventReleased, lock.ErrUnknown, "fencing_releases_total{outcome=unknown}"},
	} {
		before := scrape(t, reg)[c.series]
		err := c.err
		if err != nil {
			err = fmt.Errorf("wrapped: %w", err)
		}
		o.Observe(guard.Event{Kind: c.kind, Err: err})
		require.InDelta(t, before+1, scrape(t, reg)[c.series], 0, "%s of %v", c.series, c.err)
	}
}

func TestRegisteringTwiceSharesTheMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	for range 2 {
		newObserver(t, reg).Observe(guard.Event{Kind: guard.EventAcquired})
	}
	require.InDelta(t, 2, scrape(t, reg)["fencing_acquisitions_total{outcome=ok}"], 0)
}

func TestWhoGetsNoLockIsCountedApart(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	o := newObserver(t, reg)
	for _, err := range []error{nil, &lock.HeldError{Resource: h.Resource}, lock.ErrHeld, errors.New("no route")} {
		o.Observe(guard.Event{Kind: guard.EventAcquired, Err: err})
	}
	got := scrape(t, reg)
	for outcome, want := range map[string]float64{"ok": 1, "held": 2, "failed": 1} {
		require.InDelta(t, want, got["fencing_acquisitions_total{outcome="+outcome+"}"], 0, outcome)
	}
}

func TestLabelsOfTheRegistererTellLockersApart(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	for _, name := range []string{"orders", "stock", "stock"} {
		labelled := prometheus.WrapRegistererWith(prometheus.Labels{"locker": name}, reg)
		newObserver(t, labelled).Observe(guard.Event{Kind: guard.EventAcquired})
	}
	got := scrape(t, reg)
	require.InDelta(t, 1, got["fencing_acquisitions_total{locker=orders}{outcome=ok}"], 0)
	require.InDelta(t, 2, got["fencing_acquisitions_total{locker=stock}{outcome=ok}"], 0)
}

func TestForeignMetricOfTheSameNameIsRefused(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "fencing_leases_lost_total", Help: "Another."}))
	o, err := guardprom.New(reg)
	require.ErrorContains(t, err, "guardprom: register the metrics")
	require.ErrorContains(t, err, "fencing_leases_lost_total")
	require.Nil(t, o)
	require.Len(t, scrape(t, reg), 1, "all or nothing")

	_, err = guardprom.New(nil)
	require.ErrorContains(t, err, "nil")
}

func BenchmarkObserver(b *testing.B) {
	none := guard.Observer(nil)
	prom := newObserver(b, prometheus.NewRegistry())
	stale := &guard.StaleError{Held: guard.Fence{Token: 1}, Current: guard.Fence{Token: 2}}
	for name, c := range map[string]struct {
		o guard.Observer
		e guard.Event
	}{
		"nil":      {none, guard.Event{Kind: guard.EventAcquired}},
		"acquired": {prom, guard.Event{Kind: guard.EventAcquired, Took: time.Millisecond}},
		"raised":   {prom, guard.Event{Kind: guard.EventRaised, Took: time.Millisecond}},
		"refused":  {prom, guard.Event{Kind: guard.EventRefused, Err: stale}},
		"released": {prom, guard.Event{Kind: guard.EventReleased, Remaining: time.Second}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.o.Observe(c.e)
			}
		})
	}
}

func TestNewRefusesANilRegisterer(t *testing.T) {
	t.Parallel()
	var registry *prometheus.Registry
	for _, reg := range []prometheus.Registerer{nil, registry} {
		_, err := guardprom.New(reg)
		require.ErrorContains(t, err, "registerer is nil")
	}
}
