package guardotel_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/guardotel"
	"github.com/go-fencing/fencing/internal/metrics"
	h "github.com/go-fencing/fencing/internal/metrics/metricstest"
)

// A telemetry is an observer with what it has reported.
type telemetry struct {
	guard.Observer
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
	tracer *sdktrace.TracerProvider
}

func newTelemetry(t testing.TB, opts ...sdktrace.TracerProviderOption) *telemetry {
	t.Helper()
	tel := &telemetry{reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	tel.tracer = sdktrace.NewTracerProvider(append(opts, sdktrace.WithSpanProcessor(tel.spans))...)
	meter := metric.NewMeterProvider(metric.WithReader(tel.reader))
	var err error
	tel.Observer, err = guardotel.New(guardotel.WithTracerProvider(tel.tracer), guardotel.WithMeterProvider(meter))
	require.NoError(t, err)
	return tel
}

// collect returns all samples: the value of a counter; of a histogram its count and
// its sum.
func (tel *telemetry) collect(t *testing.T) map[string]float64 {
	t.Helper()
	var got metricdata.ResourceMetrics
	require.NoError(t, tel.reader.Collect(t.Context(), &got))
	samples := make(map[string]float64)
	for _, s := range got.ScopeMetrics {
		for _, m := range s.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					samples[m.Name+text(p.Attributes)] = float64(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					samples[m.Name+text(p.Attributes)+" count"] = float64(p.Count)
					samples[m.Name+text(p.Attributes)+" sum"] = p.Sum
				}
			}
		}
	}
	return samples
}

func text(set attribute.Set) string {
	s := ""
	for _, kv := range set.ToSlice() {
		s += fmt.Sprintf("{%s=%s}", kv.Key, kv.Value.String())
	}
	return s
}

func TestHistoryIsMeasured(t *testing.T) {
	t.Parallel()
	tel := newTelemetry(t)
	h.Play(t, t.Context(), tel.Observer, func() {})
	got := tel.collect(t)
	for name, want := range map[string]float64{
		"fencing.acquisitions{outcome=ok}":         h.Acquisitions,
		"fencing.lock.wait count":                  h.Waits,
		"fencing.lock.wait sum":                    (h.FirstWait + h.SecondWait).Seconds(),
		"fencing.lock.waits_given_up":              h.WaitsGivenUp,
		"fencing.raise.wait count":                 h.Raises, // on the bubble's clock the refused one took no time
		"fencing.rejections{reason=stale}":         h.RefusedRaises + h.RefusedWrites,
		"fencing.sequencer.regressions":            h.Regressions,
		"fencing.renewals{outcome=ok}":             h.Renewals,
		"fencing.lease.remaining_at_commit count":  h.Commits,
		"fencing.leases.lost":                      h.Lost,
		"fencing.releases{outcome=ok}":             h.Released,
		"fencing.releases{outcome=lost}":           h.ReleasedLost,
		"fencing.lease.remaining_at_release count": h.Released + h.ReleasedLost,
	} {
		require.Contains(t, got, name)
		require.InDelta(t, want, got[name], 0.01, name)
	}
	require.Empty(t, tel.spans.Ended(), "there was no trace to add to")
}

func TestHistoryIsTraced(t *testing.T) {
	t.Parallel()
	tel := newTelemetry(t)
	ctx, job := tel.tracer.Tracer("job").Start(t.Context(), "job")
	var begun time.Time
	nonces := h.Play(t, ctx, func(e guard.Event) {
		if begun.IsZero() {
			begun = time.Now()
		}
		tel.Observe(e)
	}, func() { job.End() })

	spans := make(map[string][]sdktrace.ReadOnlySpan)
	for _, s := range tel.spans.Ended() {
		spans[s.Name()] = append(spans[s.Name()], s)
		for _, kv := range s.Attributes() {
			require.NotContains(t, nonces, kv.Value.String(), "whoever knows a nonce can release the lock")
		}
		if s.Name() != "job" {
			require.Equal(t, job.SpanContext().SpanID(), s.Parent().SpanID(), s.Name())
		}
	}
	require.Len(t, spans["fencing.acquire"], h.Acquisitions)
	require.Len(t, spans["fencing.raise"], h.Raises)
	require.Len(t, spans["fencing.release"], h.Released+h.ReleasedLost)
	require.Len(t, spans["fencing.wait"], h.Waits)

	granted, gaveUp := spans["fencing.wait"][0], spans["fencing.wait"][1]
	require.Equal(t, begun, granted.StartTime(), "when it began to wait, not when it was told")
	require.Equal(t, h.FirstWait, granted.EndTime().Sub(granted.StartTime()))
	require.Equal(t, codes.Unset, granted.Status().Code)
	require.Equal(t, h.SecondWait, gaveUp.EndTime().Sub(gaveUp.StartTime()))
	require.Equal(t, codes.Error, gaveUp.Status().Code)
	require.Contains(t, granted.Attributes(), attribute.String("fencing.resource", h.Resource))
	require.Contains(t, granted.Attributes(), attribute.String("fencing.holder", "worker-b"))

	noted := make(map[string]int)
	for _, e := range spans["job"][0].Events() {
		noted[e.Name]++
		if e.Name == "fencing.refused" {
			require.Contains(t, e.Attributes, attribute.String("reason", "stale"))
		}
	}
	require.Equal(t, map[string]int{"fencing.refused": h.RefusedRaises + h.RefusedWrites, "fencing.repaired": h.Regressions, "fencing.lost": h.Lost}, noted)
}

func TestRefusedRaiseIsASpanThatFailed(t *testing.T) {
	t.Parallel()
	tel := newTelemetry(t)
	ctx, job := tel.tracer.Tracer("job").Start(t.Context(), "job")
	tel.Observe(guard.Event{Kind: guard.EventRefused, Context: ctx, Took: 10 * time.Second, Err: guard.ErrBlocked})
	job.End()
	raise := tel.spans.Ended()[0]
	require.Equal(t, "fencing.raise", raise.Name())
	require.Equal(t, codes.Error, raise.Status().Code)
	require.Equal(t, 10*time.Second, raise.EndTime().Sub(raise.StartTime()))
	require.Len(t, job.(sdktrace.ReadOnlySpan).Events(), 1)
}

func TestTraceThatIsNotSampledCostsNoSpan(t *testing.T) {
	t.Parallel()
	tel := newTelemetry(t, sdktrace.WithSampler(sdktrace.NeverSample()))
	ctx, job := tel.tracer.Tracer("job").Start(t.Context(), "job")
	defer job.End()
	for _, kind := range guard.EventKinds() {
		tel.Observe(guard.Event{Kind: kind, Context: ctx, Took: time.Second})
	}
	require.Empty(t, tel.spans.Started())
}

// A loss, or a raise that was blocked until its context ended, must count too.
func TestEventOfADeadContextIsMeasured(t *testing.T) {
	t.Parallel()
	tel := newTelemetry(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tel.Observe(guard.Event{Kind: guard.EventLost, Context: ctx})
	require.InDelta(t, 1, tel.collect(t)["fencing.leases.lost"], 0)
}

// A new kind of event must not be forgotten here.
func TestEveryKindOfEventChangesAMetric(t *testing.T) {
	t.Parallel()
	tel := newTelemetry(t)
	for _, kind := range guard.EventKinds() {
		before := tel.collect(t)
		tel.Observe(guard.Event{Kind: kind, Took: time.Second, Remaining: time.Second})
		require.NotEqual(t, before, tel.collect(t), "%s", kind)
	}
}

// The descriptions are those of guardprom, whose names are to follow from them.
func TestEveryMetricIsDescribed(t *testing.T) {
	t.Parallel()
	tel := newTelemetry(t)
	for _, kind := range guard.EventKinds() {
		tel.Observe(guard.Event{Kind: kind, Took: time.Second, Err: guard.ErrStale})
	}
	var got metricdata.ResourceMetrics
	require.NoError(t, tel.reader.Collect(t.Context(), &got))
	units := make(map[string]string)
	for _, m := range got.ScopeMetrics[0].Metrics {
		require.NotEmpty(t, m.Description, m.Name)
		units[m.Name] = m.Unit
	}
	all := append(metrics.Counters(), metrics.Histograms()...)
	require.Len(t, units, len(all))
	for _, d := range all {
		require.Equal(t, d.Unit, units[d.Name])
	}
}

func BenchmarkObserver(b *testing.B) {
	withSDK := newTelemetry(b)
	global, err := guardotel.New(guardotel.WithTracerProvider(tracenoop.NewTracerProvider()), guardotel.WithMeterProvider(noop.NewMeterProvider()))
	require.NoError(b, err)
	tracer := sdktrace.NewTracerProvider() // without a processor: what the spans themselves cost
	traced, err := guardotel.New(guardotel.WithTracerProvider(tracer), guardotel.WithMeterProvider(noop.NewMeterProvider()))
	require.NoError(b, err)
	ctx, job := tracer.Tracer("job").Start(context.Background(), "job")
	defer job.End()
	f := guard.Fence{Resource: "inventory:sku-42", Token: 33, Holder: "worker-a"}
	for name, c := range map[string]struct {
		o guard.Observer
		e guard.Event
	}{
		"noop":            {global, guard.Event{Kind: guard.EventAcquired, Context: context.Background(), Fence: f, Took: time.Millisecond}},
		"sdk/acquired":    {withSDK.Observer, guard.Event{Kind: guard.EventAcquired, Context: context.Background(), Fence: f, Took: time.Millisecond}},
		"sdk/raised":      {withSDK.Observer, guard.Event{Kind: guard.EventRaised, Context: context.Background(), Fence: f, Took: time.Millisecond}},
		"sdk/refused":     {withSDK.Observer, guard.Event{Kind: guard.EventRefused, Context: context.Background(), Fence: f, Err: guard.ErrStale}},
		"traced/acquired": {traced, guard.Event{Kind: guard.EventAcquired, Context: ctx, Fence: f, Took: time.Millisecond}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.o.Observe(c.e)
			}
		})
	}
}

func TestNewRefusesANilOption(t *testing.T) {
	t.Parallel()
	_, err := guardotel.New(nil)
	require.ErrorContains(t, err, "option is nil")
}

func TestANilProviderIsTheGlobalOne(t *testing.T) {
	t.Parallel()
	var tracers *sdktrace.TracerProvider
	var meters *metric.MeterProvider
	for _, opts := range [][]guardotel.Option{
		{guardotel.WithTracerProvider(nil), guardotel.WithMeterProvider(nil)},
		{guardotel.WithTracerProvider(tracers), guardotel.WithMeterProvider(meters)},
	} {
		o, err := guardotel.New(opts...)
		require.NoError(t, err)
		o.Observe(guard.Event{Kind: guard.EventAcquired, Context: t.Context()})
	}
}
