package guardslog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/guardslog"
	h "github.com/go-fencing/fencing/internal/metrics/metricstest"
)

// A records is a handler that keeps what is logged, as a JSON handler writes it and
// with the context.
type records struct {
	mu    sync.Mutex
	level slog.Level
	lines []map[string]any
	text  string
	any   []slog.Attr // whose values a handler can look into
	ctxs  []context.Context
}

func (r *records) Enabled(_ context.Context, l slog.Level) bool { return l >= r.level }
func (r *records) WithAttrs([]slog.Attr) slog.Handler           { return r }
func (r *records) WithGroup(string) slog.Handler                { return r }

func (r *records) Handle(ctx context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b bytes.Buffer
	if err := slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}).Handle(ctx, record); err != nil {
		return err
	}
	record.Attrs(func(a slog.Attr) bool {
		if a.Value.Kind() == slog.KindAny {
			r.any = append(r.any, a)
		}
		return true
	})
	line := make(map[string]any)
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		return err
	}
	r.text += b.String()
	r.lines, r.ctxs = append(r.lines, line), append(r.ctxs, ctx)
	return nil
}

func TestHistoryIsLogged(t *testing.T) {
	t.Parallel()
	r := &records{level: slog.LevelDebug}
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "trace")
	nonces := h.Play(t, ctx, guardslog.New(slog.New(r)), func() {})
	for _, nonce := range nonces {
		require.NotContains(t, r.text, nonce, "whoever knows a nonce can release the lock")
	}
	counts := make(map[string]int)
	for i, line := range r.lines {
		counts[line["level"].(string)+" "+line["msg"].(string)]++
		if line["msg"] != "fence renewed" {
			require.Equal(t, "trace", r.ctxs[i].Value(key{}), "%v", line)
		}
	}
	require.Equal(t, map[string]int{
		"DEBUG fence acquired":  h.Acquisitions,
		"DEBUG fence raised":    h.Raises,
		"DEBUG fence renewed":   h.Renewals,
		"DEBUG fence committed": h.Commits,
		"DEBUG fence released":  h.Released,
		"INFO fence waited":     h.Waits,
		"WARN fence refused":    h.RefusedRaises + h.RefusedWrites,
		"WARN fence repaired":   h.Regressions,
		"WARN fence lost":       h.Lost,
		"WARN fence released":   h.ReleasedLost,
	}, counts)

	i := slices.IndexFunc(r.lines, func(line map[string]any) bool { return line["msg"] == "fence refused" })
	line := r.lines[i]
	require.Equal(t, h.Resource, line["resource"])
	require.InDelta(t, 1, line["token"], 0)
	require.Equal(t, "worker-a", line["holder"])
	require.Contains(t, line["error"], "superseded by token 40")
}

// A new kind of event must not be forgotten here.
func TestEveryKindOfEventHasItsLevel(t *testing.T) {
	t.Parallel()
	levels := map[guard.EventKind]string{
		guard.EventWaited: "INFO", guard.EventAcquired: "DEBUG", guard.EventRaised: "DEBUG", guard.EventRepaired: "WARN",
		guard.EventRenewed: "DEBUG", guard.EventCommitted: "DEBUG", guard.EventRefused: "WARN", guard.EventUnguarded: "WARN",
		guard.EventLost: "WARN", guard.EventReleased: "DEBUG",
	}
	r := &records{level: slog.LevelDebug}
	guardslog.New(slog.New(r)).Observe(guard.Event{Kind: guard.EventAcquired, Err: errors.New("held")})
	require.Equal(t, "INFO", r.lines[0]["level"], "in vain")
	for _, kind := range guard.EventKinds() {
		r := &records{level: slog.LevelDebug}
		o := guardslog.New(slog.New(r))
		o.Observe(guard.Event{Kind: kind, Took: time.Second})
		require.Len(t, r.lines, 1)
		require.Equal(t, "fence "+kind.String(), r.lines[0]["msg"])
		require.Equal(t, levels[kind], r.lines[0]["level"], "%s", kind)
	}
	for _, kind := range []guard.EventKind{guard.EventRenewed, guard.EventReleased} {
		r := &records{level: slog.LevelWarn}
		guardslog.New(slog.New(r)).Observe(guard.Event{Kind: kind, Err: errors.New("no answer")})
		require.Len(t, r.lines, 1, "%s that failed", kind)
	}
}

// A handler that looks into values must not find the nonce either.
func TestNonceIsInNoAttribute(t *testing.T) {
	t.Parallel()
	r := &records{level: slog.LevelDebug}
	f := guard.Fence{Resource: "r", Token: 1, Nonce: "secret-nonce", Holder: "worker-a"}
	o := guardslog.New(slog.New(r))
	for _, kind := range guard.EventKinds() {
		o.Observe(guard.Event{Kind: kind, Fence: f, Err: &guard.StaleError{Held: f, Current: f}})
	}
	require.Len(t, r.lines, len(guard.EventKinds()))
	require.NotContains(t, r.text, f.Nonce)
	require.Empty(t, r.any)
}

func TestWithoutALoggerItIsTheDefaultOne(t *testing.T) {
	t.Parallel()
	require.NotPanics(t, func() { guardslog.New(nil).Observe(guard.Event{Kind: guard.EventAcquired}) })
}

func BenchmarkObserver(b *testing.B) {
	e := guard.Event{Kind: guard.EventAcquired, Fence: guard.Fence{Resource: "inventory:sku-42", Token: 33, Holder: "worker-a"}, Took: time.Millisecond}
	for name, level := range map[string]slog.Level{"level off": slog.LevelInfo, "level on": slog.LevelDebug} {
		b.Run(name, func(b *testing.B) {
			o := guardslog.New(slog.New(slog.NewTextHandler(discard{}, &slog.HandlerOptions{Level: level})))
			b.ReportAllocs()
			for b.Loop() {
				o.Observe(e)
			}
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
