// Package guardotel reports what happens to fences as OpenTelemetry metrics and
// traces.
//
// The metrics are those of package guardprom, with dots in their names; through a
// Prometheus exporter they get the same names. No metric has the name of a
// resource as an attribute, spans have.
package guardotel

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/metrics"
)

const scope = "github.com/go-fencing/fencing/guard/guardotel"

type options struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
}

// An Option configures the observer.
type Option func(*options)

// WithTracerProvider sets where spans go. Defaults to the global provider, as does nil.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithMeterProvider sets where metrics go. Defaults to the global provider, as does nil.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// New returns an observer that keeps the metrics and, where the context of an event
// has a sampled span, traces it:
//
//   - spans fencing.wait, fencing.acquire, fencing.raise and fencing.release, with
//     the times at which they began and ended;
//   - on the span of the context, the events fencing.refused, fencing.repaired,
//     fencing.unguarded and, of the lease's, fencing.lost.
//
// Give it to the locker and to the guards; it is safe for concurrent use. A nonce
// is never reported: whoever knows it can release the lock or enter as its holder.
// The error is that of the meter provider.
func New(opts ...Option) (guard.Observer, error) {
	var o options
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("guardotel: an option is nil")
		}
		opt(&o)
	}
	if isNil(o.tracers) {
		o.tracers = otel.GetTracerProvider()
	}
	if isNil(o.meters) {
		o.meters = otel.GetMeterProvider()
	}
	m, err := newMeters(o.meters.Meter(scope))
	if err != nil {
		return nil, fmt.Errorf("guardotel: %w", err)
	}
	t := tracer{o.tracers.Tracer(scope)}
	return func(e guard.Event) {
		metrics.Record(&e, m)
		t.trace(&e)
	}, nil
}

// isNil reports whether a provider is nil, or a nil pointer to one.
func isNil(provider any) bool {
	v := reflect.ValueOf(provider)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// meters are the instruments, with the options of every series made once.
type meters struct {
	counters   []metric.Int64Counter
	series     [][][]metric.AddOption // by metrics.Counter and the index of its label's value
	histograms []metric.Float64Histogram
}

func newMeters(meter metric.Meter) (*meters, error) {
	m := &meters{}
	for _, d := range metrics.Counters() {
		c, err := meter.Int64Counter(d.Name, metric.WithDescription(d.Help), metric.WithUnit(d.Unit))
		if err != nil {
			return nil, err
		}
		series := [][]metric.AddOption{nil}
		if d.Label != "" {
			series = make([][]metric.AddOption, len(d.Values))
		}
		for i, value := range d.Values {
			set := attribute.NewSet(attribute.String(d.Label, value))
			series[i] = []metric.AddOption{metric.WithAttributeSet(set)}
		}
		m.counters, m.series = append(m.counters, c), append(m.series, series)
	}
	for _, d := range metrics.Histograms() {
		h, err := meter.Float64Histogram(d.Name, metric.WithDescription(d.Help), metric.WithUnit(d.Unit), metric.WithExplicitBucketBoundaries(d.Bounds...))
		if err != nil {
			return nil, err
		}
		m.histograms = append(m.histograms, h)
	}
	return m, nil
}

// Count implements metrics.Sink.
func (m *meters) Count(ctx context.Context, c metrics.Counter, value int) {
	m.counters[c].Add(ctx, 1, m.series[c][value]...)
}

// Measure implements metrics.Sink.
func (m *meters) Measure(ctx context.Context, h metrics.Histogram, seconds float64) {
	m.histograms[h].Record(ctx, seconds)
}
