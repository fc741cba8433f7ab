package objectguard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/objectguard"
)

func TestReadWriteUpdateAndDelete(t *testing.T) {
	t.Parallel()
	m := newMemory()
	g := open(t, m)
	ctx, _ := raised(t, g, "r", 33, "A")
	read := func() []byte {
		t.Helper()
		data, err := g.Read(ctx, "r")
		require.NoError(t, err)
		fromOutside, err := objectguard.Data(m.objects["r"])
		require.NoError(t, err)
		require.Equal(t, fromOutside, data)
		return data
	}
	require.Nil(t, read())
	require.NoError(t, g.Write(ctx, "r", []byte("first\nsecond\x00\xff")))
	require.Equal(t, "first\nsecond\x00\xff", string(read()))
	require.NoError(t, g.Update(ctx, "r", func(old []byte) ([]byte, error) { old[0] = 'F'; return old, nil }), "in place")
	require.Equal(t, "First\nsecond\x00\xff", string(read()))
	require.NoError(t, g.Write(ctx, "r", nil))
	require.Equal(t, []byte{}, read(), "nothing is something, too")
	require.NoError(t, g.Delete(ctx, "r"))
	require.Nil(t, read())

	puts := m.puts
	require.NoError(t, g.Delete(ctx, "r"))
	require.NoError(t, g.Update(ctx, "r", func(old []byte) ([]byte, error) { return old, nil }))
	require.Equal(t, puts, m.puts, "nothing to write")
	mine := errors.New("mine")
	require.Equal(t, mine, g.Update(ctx, "r", func([]byte) ([]byte, error) { return []byte("x"), mine }))
	require.Nil(t, read())
}

func TestARefusedWriteWritesNothing(t *testing.T) {
	t.Parallel()
	m := newMemory()
	g := open(t, m)
	early := guard.NewContext(t.Context(), fence("r", 1, "early"))
	require.ErrorIs(t, g.Write(early, "r", []byte("x")), guard.ErrNotRaised)
	require.Empty(t, m.objects, "a write makes no fence")

	a, heldA := raised(t, g, "r", 33, "A")
	require.NoError(t, g.Write(a, "r", []byte("from A")))
	before := time.Now()
	b, heldB := raised(t, g, "r", 34, "B")
	for name, write := range map[string]func(ctx context.Context) error{
		"Write":  func(ctx context.Context) error { return g.Write(ctx, "r", []byte("stale")) },
		"Delete": func(ctx context.Context) error { return g.Delete(ctx, "r") },
		"Read":   func(ctx context.Context) error { _, err := g.Read(ctx, "r"); return err },
		"Update": func(ctx context.Context) error {
			return g.Update(ctx, "r", func([]byte) ([]byte, error) { t.Error("it runs"); return nil, nil })
		},
	} {
		err := write(a)
		require.ErrorIs(t, err, guard.ErrStale, name)
		stale, ok := errors.AsType[*guard.StaleError](err)
		require.True(t, ok, name)
		require.Equal(t, heldA, stale.Held, name)
		require.Equal(t, guard.Fence{Resource: "r", Token: 34, Holder: "B"}, stale.Current, name)
		require.WithinDuration(t, before, stale.Since, time.Minute)
		twin := fence("r", 34, "twin")
		require.ErrorIs(t, write(guard.NewContext(t.Context(), twin)), guard.ErrConflict, name)
		require.ErrorIs(t, write(guard.NewContext(t.Context(), fence("r", 35, "C"))), guard.ErrNotRaised, name)
		require.ErrorIs(t, write(t.Context()), guard.ErrNoFence, name)
		err = write(guard.NewContext(t.Context(), fence("other", 1, "C")))
		require.ErrorIs(t, err, guard.ErrNoFence, name)
		require.ErrorContains(t, err, `that of "other" is in object "other"`, name)
	}
	data, err := g.Read(b, "r")
	require.NoError(t, err)
	require.Equal(t, "from A", string(data))
	for _, f := range []guard.Fence{heldA, heldB} {
		require.NotContains(t, string(m.objects["r"]), f.Nonce, "more people read an object than may write it")
	}
}

// The raise comes between the look and the write, and between the look and a reply.
func TestS3_TheRaiseComesBeforeThePut(t *testing.T) {
	t.Parallel()
	m := newMemory()
	g := open(t, m)
	a, _ := raised(t, g, "r", 33, "A")
	require.NoError(t, g.Write(a, "r", []byte("first")))
	var b context.Context
	err := g.Update(a, "r", func([]byte) ([]byte, error) {
		b, _ = raised(t, g, "r", 34, "B")
		return []byte("stale"), nil
	})
	require.ErrorIs(t, err, guard.ErrStale)
	data, err := g.Read(b, "r")
	require.NoError(t, err)
	require.Equal(t, "first", string(data))
}

// Versions that are hashes of the bytes come again with the bytes. They must not.
func TestNoTwoStatesOfAnObjectAreEqual(t *testing.T) {
	t.Parallel()
	m := newMemory()
	g := open(t, m)
	ctx, _ := raised(t, g, "r", 33, "A")
	seen := make(map[string]bool)
	look := func() {
		t.Helper()
		require.False(t, seen[string(m.objects["r"])], "%s", m.objects["r"])
		seen[string(m.objects["r"])] = true
	}
	look()
	for _, data := range []string{"x", "y", "x", "y"} {
		require.NoError(t, g.Write(ctx, "r", []byte(data)))
		look()
	}
	require.NoError(t, g.Delete(ctx, "r"))
	look()
	raised(t, g, "r", 34, "A")
	look()
}

// S24: a write that was given up arrives late. After the next raise it does not count.
func TestS24_ALateWriteIsRefusedAfterTheNextRaise(t *testing.T) {
	t.Parallel()
	m := newMemory()
	g := open(t, m)
	a, _ := raised(t, g, "r", 33, "A")
	a, cancel := context.WithCancel(a)
	var late func() error
	m.put = func(next func() error) error { late = next; cancel(); return errLost }
	require.ErrorIs(t, g.Write(a, "r", []byte("late")), guard.ErrCommitUnknown)
	b, _ := raised(t, g, "r", 34, "A")
	require.ErrorIs(t, late(), objectguard.ErrChanged)
	data, err := g.Read(b, "r")
	require.NoError(t, err)
	require.Nil(t, data)
}

func TestARaiseAmongTooManyWritesIsBlocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		g := open(t, m)
		a, _ := raised(t, g, "r", 33, "A")
		var busy func(func() error) error
		busy = func(func() error) error { m.put = busy; return objectguard.ErrChanged }
		m.put = busy
		began := time.Now()
		err := g.Raise(t.Context(), fence("r", 34, "B"))
		require.ErrorIs(t, err, guard.ErrBlocked)
		require.ErrorContains(t, err, `object "r"`)
		require.ErrorContains(t, g.Write(a, "r", []byte("x")), "nothing was written: others have changed the object")
		require.InDelta(t, 20, time.Since(began).Seconds(), 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.Raise(ctx, fence("r", 34, "B")), context.DeadlineExceeded)
	})
}

func TestForeignObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	const valid = `{"fences":[{"resource":"a","token":"1","nonce_sha256":"x"},{"resource":"r","token":"1","nonce_sha256":"x"}],"write":""}` + "\n"
	for name, text := range map[string]string{
		"data":               "stock,42\n",
		"nothing":            "",
		"cut off":            "fencing object 1\n{}",
		"no JSON":            "fencing object 1\nstock\n",
		"another version":    "fencing object 2\n{}\n",
		"a token of 0":       strings.ReplaceAll("fencing object 1\n"+valid, `"1"`, `"0"`),
		"a token of a float": strings.ReplaceAll("fencing object 1\n"+valid, `"1"`, `1.5`),
		"no nonce":           strings.ReplaceAll("fencing object 1\n"+valid, `"x"`, `""`),
		"not sorted":         strings.ReplaceAll("fencing object 1\n"+valid, `"a"`, `"z"`),
	} {
		m := newMemory()
		g := open(t, m)
		m.objects["r"] = []byte(text)
		f := fence("r", 33, "A")
		_, err := objectguard.Data([]byte(text))
		for _, err := range []error{err, g.Raise(t.Context(), f), g.Write(guard.NewContext(t.Context(), f), "r", nil)} {
			require.ErrorIs(t, err, objectguard.ErrForeign, name)
		}
		require.Equal(t, text, string(m.objects["r"]), name)
	}
	g := open(t, &memory{objects: map[string][]byte{"r": []byte("fencing object 1\n" + valid + "data")}})
	require.NoError(t, g.Raise(t.Context(), fence("r", 2, "A")))
}

func TestWithObject(t *testing.T) {
	t.Parallel()
	m := newMemory()
	g := open(t, m, objectguard.WithObject(func(resource string) string { table, _, _ := strings.Cut(resource, "/"); return table }))
	_, a := raised(t, g, "orders/1", 33, "A")
	_, b := raised(t, g, "orders/2", 7, "A")
	_, c := raised(t, g, "invoices/1", 7, "A")
	require.Len(t, m.objects, 2)
	ctx := guard.NewContext(t.Context(), a, b, c)
	require.NoError(t, g.Write(ctx, "orders", []byte("x")))
	raised(t, g, "invoices/1", 8, "B")
	require.NoError(t, g.Write(ctx, "orders", []byte("y")), "another object has nothing to do with it")
	raised(t, g, "orders/2", 8, "B")
	err := g.Write(ctx, "orders", []byte("z"))
	stale, ok := errors.AsType[*guard.StaleError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, b, stale.Held)

	nameless := open(t, m, objectguard.WithObject(func(string) string { return "" }))
	require.ErrorIs(t, nameless.Raise(t.Context(), a), guard.ErrInvalid)
	require.ErrorIs(t, nameless.Write(ctx, "", nil), guard.ErrNoFence)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	_, err := objectguard.New(nil)
	require.ErrorContains(t, err, "bucket is nil")
	_, err = objectguard.New(newMemory(), nil)
	require.ErrorContains(t, err, "option is nil")
	_, err = objectguard.New(newMemory(), objectguard.WithObject(nil))
	require.ErrorContains(t, err, "function is nil")
}

// until is a lease with a fixed deadline.
type until time.Time

func (u until) Deadline() time.Time { return time.Time(u) }

func TestObserver(t *testing.T) {
	t.Parallel()
	var events []guard.Event
	m := newMemory()
	g := open(t, m, objectguard.WithObserver(func(e guard.Event) { events = append(events, e) }))
	only := func() guard.Event {
		t.Helper()
		require.Len(t, events, 1)
		e := events[0]
		events = nil
		return e
	}
	ctx, a := raised(t, g, "r", 33, "A")
	require.Equal(t, guard.EventRaised, only().Kind)
	require.NoError(t, g.Write(guard.WithDeadline(ctx, until(time.Now().Add(-time.Hour))), "r", nil))
	e := only()
	require.Equal(t, guard.EventCommitted, e.Kind)
	require.Equal(t, a, e.Fence)
	require.Error(t, g.Update(ctx, "r", func([]byte) ([]byte, error) { return nil, errLost }))
	_, err := g.Read(ctx, "r")
	require.NoError(t, err)
	require.Empty(t, events)
	raised(t, g, "r", 34, "B")
	require.Equal(t, guard.EventRaised, only().Kind)
	require.ErrorIs(t, g.Write(ctx, "r", nil), guard.ErrStale)
	e = only()
	require.Equal(t, guard.EventRefused, e.Kind)
	require.Equal(t, a, e.Fence)
	require.ErrorIs(t, g.Raise(ctx, a), guard.ErrStale)
	require.Equal(t, guard.EventRefused, only().Kind)
}

// What the README promises.
func TestRequests(t *testing.T) {
	t.Parallel()
	m := newMemory()
	g := open(t, m)
	f := fence("r", 33, "A")
	ctx := guard.NewContext(t.Context(), f)
	for _, c := range []struct {
		what       string
		gets, puts int
		call       func() error
	}{
		{"the first raise", 1, 1, func() error { return g.Raise(ctx, f) }},
		{"a repeated raise", 1, 0, func() error { return g.Raise(ctx, f) }},
		{"write", 1, 1, func() error { return g.Write(ctx, "r", []byte("x")) }},
		{"read", 1, 0, func() error { _, err := g.Read(ctx, "r"); return err }},
		{"delete", 1, 1, func() error { return g.Delete(ctx, "r") }},
		{"raise", 1, 1, func() error { return g.Raise(ctx, fence("r", 34, "B")) }},
		{"refused", 1, 0, func() error {
			if err := g.Write(ctx, "r", nil); !errors.Is(err, guard.ErrStale) {
				return errors.New("not refused")
			}
			return nil
		}},
	} {
		gets, puts := m.gets, m.puts
		require.NoError(t, c.call(), c.what)
		require.Equal(t, [2]int{c.gets, c.puts}, [2]int{m.gets - gets, m.puts - puts}, c.what)
	}
}
