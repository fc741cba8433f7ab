package guardotel

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/metrics"
)

type tracer struct{ trace.Tracer }

// trace adds the event to the trace of its context. Without one it does nothing:
// an acquisition alone, without the work that it is for, tells nothing that the
// metrics do not.
func (t tracer) trace(e *guard.Event) {
	parent := trace.SpanFromContext(e.Context)
	if !parent.IsRecording() && !parent.SpanContext().IsSampled() { // the latter: of another process
		return
	}
	switch e.Kind {
	case guard.EventWaited:
		t.span(e, "fencing.wait")
	case guard.EventAcquired:
		if e.Err != nil { // mostly it is held, as TryAcquire is there to find out: no failure of the span
			note(parent, e)
			return
		}
		t.span(e, "fencing.acquire")
	case guard.EventRaised:
		t.span(e, "fencing.raise")
	case guard.EventReleased:
		t.span(e, "fencing.release", attribute.Float64("fencing.remaining", e.Remaining.Seconds()))
	case guard.EventRefused:
		if e.Took > 0 {
			t.span(e, "fencing.raise")
		}
		note(parent, e, attribute.String("reason", metrics.Reason(e.Err)))
	case guard.EventRepaired, guard.EventUnguarded, guard.EventLost:
		note(parent, e)
	}
}

// span makes a span of what has ended just now.
func (t tracer) span(e *guard.Event, name string, more ...attribute.KeyValue) {
	end := time.Now()
	_, s := t.Start(e.Context, name, trace.WithTimestamp(end.Add(-e.Took)), trace.WithAttributes(append(attributes(e), more...)...))
	if e.Err != nil {
		s.RecordError(e.Err, trace.WithTimestamp(end))
		s.SetStatus(codes.Error, e.Err.Error())
	}
	s.End(trace.WithTimestamp(end))
}

// note puts an event on a span.
func note(s trace.Span, e *guard.Event, more ...attribute.KeyValue) {
	attrs := append(attributes(e), more...)
	if e.Err != nil {
		attrs = append(attrs, attribute.String("error", e.Err.Error()))
	}
	s.AddEvent("fencing."+e.Kind.String(), trace.WithAttributes(attrs...))
}

// attributes are the fence without its nonce.
func attributes(e *guard.Event) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 5)
	if e.Fence.Resource != "" {
		attrs = append(attrs, attribute.String("fencing.resource", e.Fence.Resource))
	}
	if e.Fence.Token != 0 {
		attrs = append(attrs, attribute.Int64("fencing.token", int64(e.Fence.Token)))
	}
	if e.Fence.Holder != "" {
		attrs = append(attrs, attribute.String("fencing.holder", e.Fence.Holder))
	}
	return attrs
}
