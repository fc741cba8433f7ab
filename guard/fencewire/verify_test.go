package fencewire_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/internal/wiretest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

func TestForgedValuesAreRefused(t *testing.T) {
	t.Parallel()
	v := verifier(t, "inventory", []fencewire.Key{first, second})
	good := wiretest.Values(t, wiretest.Signer(t, "inventory", first), held)[0]
	parts := strings.Split(good, ";")
	with := func(i int, part string) string {
		changed := slices.Clone(parts)
		changed[i] = part
		return strings.Join(changed, ";")
	}
	mac := parts[7]
	for name, c := range map[string]struct{ value, why string }{
		"the bare text of a fence":       {"inventory:sku-42;9223372036854775807;5f0c;x", "it has 4 parts"},
		"a guess of the secret":          {wiretest.Values(t, wiretest.Signer(t, "inventory", forged), held)[0], `it was not made for "inventory" with the key "k1"`},
		"another audience":               {wiretest.Values(t, wiretest.Signer(t, "billing", first), held)[0], `it was not made for "inventory"`},
		"an unknown key":                 {with(1, "k3"), `does not have the key "k3"`},
		"another key of ours":            {with(1, "k2"), "MAC does not match"},
		"no key":                         {with(1, ""), `does not have the key ""`},
		"another version":                {with(0, "2"), `its version is "2"`},
		"a fresher time":                 {with(2, parts[2]+"0"), "MAC does not match"},
		"another resource":               {with(3, "inventory:sku-43"), "MAC does not match"},
		"a greater token":                {with(4, "34"), "MAC does not match"},
		"another nonce":                  {with(5, "5f0d"), "MAC does not match"},
		"another holder":                 {with(6, "worker-b"), "MAC does not match"},
		"no MAC":                         {with(7, ""), "MAC does not match"},
		"part of the MAC":                {with(7, mac[:42]), "MAC does not match"},
		"a MAC and more":                 {with(7, mac+"A"), "MAC does not match"},
		"a padded MAC":                   {with(7, mac+"="), "MAC does not match"},
		"trailing bits of the MAC":       {with(7, mac[:42]+string(next(mac[42]))), "MAC does not match"},
		"a MAC of the standard alphabet": {with(7, "+"+mac[1:]), "MAC does not match"},
		"parts moved between two":        {with(5, "5f0c;"), "it has 9 parts"},
		"cut":                            {good[:len(good)/2], "parts"},
		"empty":                          {"", "it has 1 parts"},
		"quoted":                         {`"` + good + `"`, `its version is "\"1"`},
		"followed by a comma":            {good + ",", "value 2: it has 1 parts"},
		"not ASCII":                      {good + "é", "MAC does not match"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireUnverified(t, v, []string{c.value}, c.why)
			other := wiretest.Values(t, wiretest.Signer(t, "inventory", first), guard.Fence{Resource: "order:7", Token: 1, Nonce: "n"})[0]
			requireUnverified(t, v, []string{other, c.value}, "")
			requireUnverified(t, v, []string{c.value + "," + other}, "")
		})
	}
	_, err := v.Verify(t.Context(), []string{good})
	require.NoError(t, err)
}

// next returns a character of base64 that differs in its last bit, of which the last
// one of a MAC has two that carry nothing.
func next(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)^1]
}

func TestRequestsBeyondTheBoundsAreRefused(t *testing.T) {
	t.Parallel()
	s, v := wiretest.Signer(t, "inventory", first), verifier(t, "inventory", []fencewire.Key{first})
	many := append(wiretest.Values(t, s, numbered(fencewire.MaxFences, "")...), wiretest.Values(t, s, held)...)
	requireUnverified(t, v, many, "16 values of 6144 bytes")
	requireUnverified(t, v, []string{strings.Join(many, ",")}, "16 values of 6144 bytes")

	long := slices.Concat(wiretest.Values(t, s, numbered(2, strings.Repeat("%", 508))...), wiretest.Values(t, s, numbered(4, strings.Repeat("%", 508))[2:]...))
	requireUnverified(t, v, long, "16 values of 6144 bytes")
	requireUnverified(t, v, []string{strings.Repeat(";", fencewire.MaxBytes+1)}, "16 values of 6144 bytes")
	requireUnverified(t, v, []string{strings.Repeat("x", 1<<20)}, "16 values of 6144 bytes")
}

// Two fences of one resource cannot both be the current one: which was meant?
func TestOneResourceTwiceIsRefused(t *testing.T) {
	t.Parallel()
	s, v := wiretest.Signer(t, "inventory", first), verifier(t, "inventory", []fencewire.Key{first})
	later := held
	later.Token++
	same, other := wiretest.Values(t, s, held), wiretest.Values(t, s, later)
	requireUnverified(t, v, slices.Concat(same, same), `value 2: the request has two fences of "inventory:sku-42"`)
	requireUnverified(t, v, slices.Concat(same, other), `value 2: the request has two fences of "inventory:sku-42"`)
	requireUnverified(t, v, []string{same[0] + "," + other[0]}, "two fences")
}

func TestAReplayedValueIsGoodForTheMaximumAgeOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		minute := verifier(t, "inventory", []fencewire.Key{first})
		second := verifier(t, "inventory", []fencewire.Key{first}, fencewire.WithMaxAge(time.Second))
		captured := wiretest.Values(t, wiretest.Signer(t, "inventory", first), held)

		time.Sleep(2*time.Second - time.Nanosecond) // it may have been signed a second later
		_, err := second.Verify(t.Context(), captured)
		require.NoError(t, err)
		time.Sleep(time.Nanosecond)
		requireUnverified(t, second, captured, "it was signed 2s ago, which is more than 1s")

		time.Sleep(59*time.Second - time.Nanosecond)
		_, err = minute.Verify(t.Context(), captured)
		require.NoError(t, err)
		time.Sleep(time.Nanosecond)
		requireUnverified(t, minute, captured, "it was signed 1m1s ago, which is more than 1m0s")
		_, err = minute.Verify(t.Context(), wiretest.Values(t, wiretest.Signer(t, "inventory", first), held))
		require.NoError(t, err, "the fence itself does not age")
	})
}

// The time is sent in whole seconds: what was signed at the end of one looks older than
// it is.
func TestNoValueIsRefusedBeforeTheMaximumAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := verifier(t, "inventory", []fencewire.Key{first}, fencewire.WithMaxAge(1500*time.Millisecond))
		for _, into := range []time.Duration{0, time.Millisecond, time.Second / 2, time.Second - time.Nanosecond} {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + into)))
			captured := wiretest.Values(t, wiretest.Signer(t, "inventory", first), held)
			time.Sleep(1500 * time.Millisecond)
			_, err := v.Verify(t.Context(), captured)
			require.NoError(t, err, "signed %v into its second", into)
			time.Sleep(time.Second)
			requireUnverified(t, v, captured, "which is more than 1.5s")
		}
	})
}

func TestAValueOfTheFutureIsRefusedBeyondTheMaximumAge(t *testing.T) {
	t.Parallel()
	var ahead []string
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Minute)
		ahead = wiretest.Values(t, wiretest.Signer(t, "inventory", first), held)
		time.Sleep(time.Second)
		ahead = append(ahead, wiretest.Values(t, wiretest.Signer(t, "inventory", first), held)...)
	})
	synctest.Test(t, func(t *testing.T) { // its clock begins where that of the signer began
		v := verifier(t, "inventory", []fencewire.Key{first})
		_, err := v.Verify(t.Context(), ahead[:1])
		require.NoError(t, err, "clocks differ by a minute at most")
		requireUnverified(t, v, ahead[1:], "it was signed 1m1s in the future")
	})
}

func TestKeysAreRotatedWithoutARefusal(t *testing.T) {
	t.Parallel()
	old, both, after := []fencewire.Key{first}, []fencewire.Key{first, second}, []fencewire.Key{second}
	byFirst, bySecond := wiretest.Values(t, wiretest.Signer(t, "inventory", first), held), wiretest.Values(t, wiretest.Signer(t, "inventory", second), held)
	for _, step := range []struct {
		keys          []fencewire.Key
		first, second bool
	}{{old, true, false}, {both, true, true}, {after, false, true}} {
		v := verifier(t, "inventory", step.keys)
		for _, c := range []struct {
			values []string
			id     string
			good   bool
		}{{byFirst, "k1", step.first}, {bySecond, "k2", step.second}} {
			if !c.good {
				requireUnverified(t, v, c.values, `does not have the key "`+c.id+`"`)
				continue
			}
			_, err := v.Verify(t.Context(), c.values)
			require.NoError(t, err)
		}
	}
}

// A store that counts raises and can refuse them.
type store struct {
	*guard.Memory
	raised []guard.Fence
	err    error
}

func (s *store) Raise(ctx context.Context, f guard.Fence) error {
	s.raised = append(s.raised, f)
	if s.err != nil {
		return s.err
	}
	return s.Memory.Raise(ctx, f)
}

func TestFencesAreRaisedInEveryGuardBeforeTheWork(t *testing.T) {
	t.Parallel()
	a, b := &store{Memory: guard.NewMemory()}, &store{Memory: guard.NewMemory()}
	s := wiretest.Signer(t, "inventory", first)
	v := verifier(t, "inventory", []fencewire.Key{first}, fencewire.WithGuards(a), fencewire.WithGuards(b))
	order := guard.Fence{Resource: "order:7", Token: 1, Nonce: "n"}
	ctx, err := v.Verify(t.Context(), wiretest.Values(t, s, order, held))
	require.NoError(t, err)
	require.Equal(t, []guard.Fence{held, order}, a.raised)
	require.Equal(t, []guard.Fence{held, order}, b.raised)
	require.NoError(t, b.Write(ctx, "order:7", func() error { return nil }))

	later := held
	later.Token, later.Nonce = 34, "9e1d"
	_, err = v.Verify(t.Context(), wiretest.Values(t, s, later))
	require.NoError(t, err)
	stale, err := v.Verify(t.Context(), wiretest.Values(t, s, held))
	require.ErrorIs(t, err, guard.ErrStale)
	require.NotErrorIs(t, err, fencewire.ErrUnverified)
	require.Empty(t, guard.Fences(stale))
	require.ErrorIs(t, b.Write(ctx, held.Resource, func() error { return nil }), guard.ErrStale, "a request that was let in before is stopped at its write")
}

// A token from anyone else would leave none to any later holder.
func TestNothingIsRaisedOfARequestWithABadValue(t *testing.T) {
	t.Parallel()
	a := &store{Memory: guard.NewMemory()}
	v := verifier(t, "inventory", []fencewire.Key{first}, fencewire.WithGuards(a))
	poison := held
	poison.Token = 1<<63 - 1
	values := slices.Concat(
		wiretest.Values(t, wiretest.Signer(t, "inventory", first), guard.Fence{Resource: "order:7", Token: 1, Nonce: "n"}),
		wiretest.Values(t, wiretest.Signer(t, "inventory", forged), poison))
	requireUnverified(t, v, values, "value 2: its MAC does not match")
	require.Empty(t, a.raised)
}

func TestTheErrorOfAGuardIsTheAnswer(t *testing.T) {
	t.Parallel()
	down := errors.New("no connection")
	v := verifier(t, "inventory", []fencewire.Key{first}, fencewire.WithGuards(&store{err: down}))
	ctx, err := v.Verify(t.Context(), wiretest.Values(t, wiretest.Signer(t, "inventory", first), held))
	require.ErrorIs(t, err, down)
	require.NotErrorIs(t, err, fencewire.ErrUnverified)
	require.Empty(t, guard.Fences(ctx))
}

// The other service refuses the tokens of a lock that forgot, and can do no more;
// the locker's own guard has it repaired before anything is sent.
func TestS13_ALockThatForgotIsRepairedAtHome(t *testing.T) {
	t.Parallel()
	for name, home := range map[string][]guard.Guard{"with a guard at home": {guard.NewMemory()}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := wiretest.Signer(t, "inventory", first)
			v := verifier(t, "inventory", []fencewire.Key{first}, fencewire.WithGuards(guard.NewMemory()))
			acquire := func(b lock.Backend) error {
				l, err := lock.New(b, lock.WithGuards(home...))
				require.NoError(t, err)
				defer func() { require.NoError(t, l.Close()) }()
				return l.Do(t.Context(), held.Resource, func(ctx context.Context) error {
					values, err := s.Sign(ctx)
					require.NoError(t, err)
					_, err = v.Verify(t.Context(), values)
					return err
				})
			}
			before := memlock.New()
			for range 3 {
				require.NoError(t, acquire(before))
			}
			err := acquire(memlock.New()) // its tokens begin at 1 again
			if home != nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, guard.ErrStale)
		})
	}
}
