package objectguard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/objectguard"
)

func TestWritesWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	var g *objectguard.Guard
	raiseB := func() { raised(t, g, "r", 34, "B") }
	for name, c := range map[string]struct {
		done   bool
		then   func(a context.Context)
		want   error
		holds  string
		puts   int // of the write
		cancel bool
	}{
		"done":                       {done: true, holds: "new", puts: 1},
		"not done":                   {done: false, holds: "new", puts: 2},
		"done, and then superseded":  {done: true, then: func(context.Context) { raiseB() }, holds: "new", puts: 1},
		"superseded before it was":   {done: false, then: func(context.Context) { raiseB() }, want: guard.ErrStale, holds: "old", puts: 1},
		"done, and then overwritten": {done: true, then: func(a context.Context) { require.NoError(t, g.Write(a, "r", []byte("other"))) }, want: guard.ErrCommitUnknown, holds: "other", puts: 1},
		"overwritten before it was":  {done: false, then: func(a context.Context) { require.NoError(t, g.Write(a, "r", []byte("other"))) }, want: guard.ErrCommitUnknown, holds: "other", puts: 1},
		"done, and given up":         {done: true, cancel: true, holds: "new", puts: 1},
		"not done, and given up":     {done: false, cancel: true, want: guard.ErrCommitUnknown, holds: "old", puts: 1},
		"superseded, and given up":   {done: false, cancel: true, then: func(context.Context) { raiseB() }, want: context.Canceled, holds: "old", puts: 1},
	} {
		m := newMemory()
		g = open(t, m)
		a, _ := raised(t, g, "r", 33, "A")
		require.NoError(t, g.Write(a, "r", []byte("old")))
		a, cancel := context.WithCancel(a)
		m.lose(c.done, func() {
			if c.then != nil {
				c.then(context.WithoutCancel(a))
			}
			if c.cancel {
				cancel()
			}
		})
		before := m.puts
		err := g.Write(a, "r", []byte("new"))
		others := 0
		if c.then != nil {
			others = 1
		}
		require.Equal(t, c.puts, m.puts-before-others, name)
		if c.want == nil {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, c.want, name)
		}
		if errors.Is(err, guard.ErrCommitUnknown) {
			require.ErrorIs(t, err, errLost, name)
			require.NotErrorIs(t, err, guard.ErrStale, name)
		}
		data, err := objectguard.Data(m.objects["r"])
		require.NoError(t, err)
		require.Equal(t, c.holds, string(data), name)
		cancel()
	}
}

func TestS22_APutWhoseReplyIsLostIsRepeated(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{true, false} {
		m := newMemory()
		g := open(t, m)
		m.lose(done)
		a, f := raised(t, g, "r", 33, "A")
		require.NoError(t, g.Write(a, "r", []byte("x")))
		puts := m.puts
		require.NoError(t, g.Raise(a, f))
		require.Equal(t, puts, m.puts, "the fence is the current one")
	}
	m := newMemory()
	g := open(t, m)
	tries := 0
	var fail func(func() error) error
	fail = func(func() error) error { tries++; m.put = fail; return errLost }
	m.put = fail
	require.ErrorIs(t, g.Raise(t.Context(), fence("r", 33, "A")), errLost)
	require.Equal(t, 9, tries)
	tries = 0
	a := guard.NewContext(t.Context(), fence("s", 33, "A"))
	m.put = nil
	require.NoError(t, g.Raise(a, guard.Fences(a)[0]))
	m.put = fail
	require.ErrorIs(t, g.Write(a, "s", nil), guard.ErrCommitUnknown)
	require.Equal(t, 9, tries)
}

// A silent is a bucket that stops to answer with a Put, which it has done.
type silent struct {
	*memory
	gone bool
}

func (s *silent) Get(ctx context.Context, key string) (object []byte, version string, err error) {
	if s.gone {
		return nil, "", errSilent
	}
	return s.memory.Get(ctx, key)
}

var errSilent = errors.New("no answer")

// An error that says that nothing was written must not come from a look afterwards.
func TestNoErrorSaysThatNothingWasWrittenAfterALostReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &silent{memory: newMemory()}
		g := open(t, s)
		a, _ := raised(t, g, "r", 33, "A")
		for what, call := range map[string]func(ctx context.Context) error{
			"raise": func(ctx context.Context) error { return g.Raise(ctx, fence("r", 34, "B")) },
			"write": func(ctx context.Context) error { return g.Write(ctx, "r", []byte("x")) },
		} {
			s.gone = true
			err := call(a)
			require.ErrorIs(t, err, errSilent, what)
			require.ErrorContains(t, err, "nothing was written: get", what)

			s.gone = false
			s.lose(false, func() { s.gone = true })
			err = call(a)
			require.ErrorIs(t, err, errLost, what)
			require.ErrorIs(t, err, errSilent, what)
			require.ErrorContains(t, err, "the reply was lost", what)
			require.NotContains(t, err.Error(), "nothing was", what)

			s.gone = false
			ctx, cancel := context.WithCancel(a)
			s.lose(false, cancel)
			err = call(ctx)
			require.ErrorIs(t, err, context.Canceled, what)
			require.ErrorIs(t, err, errLost, what)
			require.NotContains(t, err.Error(), "nothing was", what)
		}
	})
}
