package lock_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

func validRequest() lock.Request {
	return lock.Request{Resource: resource, Nonce: "nonce-a", Holder: "web-1", TTL: time.Minute}
}

func TestABadRequestIsNamedWithoutItsNonce(t *testing.T) {
	t.Parallel()
	for says, c := range map[string]struct {
		spoil func(r *lock.Request)
		owner bool // ValidateOwner says so too
	}{
		"resource name is empty":             {func(r *lock.Request) { r.Resource = "" }, true},
		`"a\nb" has a control character`:     {func(r *lock.Request) { r.Resource = "a\nb" }, true},
		"the nonce is empty":                 {func(r *lock.Request) { r.Nonce = "" }, true},
		"nonce has 129 bytes":                {func(r *lock.Request) { r.Nonce = strings.Repeat("n", 129) }, true},
		"nonce has a control character":      {func(r *lock.Request) { r.Nonce += "\t" }, true},
		`holder "web-1\x00" has a control`:   {func(r *lock.Request) { r.Holder += "\x00" }, false},
		"a TTL of 0s is asked for":           {func(r *lock.Request) { r.TTL = 0 }, false},
		"TTL of -1s is":                      {func(r *lock.Request) { r.TTL = -time.Second }, false},
		"TTL of 999.999µs is":                {func(r *lock.Request) { r.TTL = time.Millisecond - 1 }, false},
		"a TTL is from 1ms to 24h0m0s":       {func(r *lock.Request) { r.TTL = 24*time.Hour + 1 }, false},
		`a token of "inventory:sku-42" abov`: {func(r *lock.Request) { r.After = -5 }, false},
		"above -5 is asked for":              {func(r *lock.Request) { r.After = -5 }, false},
	} {
		r := validRequest()
		c.spoil(&r)
		err := r.Validate()
		require.ErrorIs(t, err, guard.ErrInvalid, says)
		require.ErrorContains(t, err, says)
		if r.Nonce != "" {
			require.NotContains(t, err.Error(), r.Nonce)
			require.NotContains(t, err.Error(), "nonce-a")
		}
		if !c.owner {
			require.NoError(t, r.ValidateOwner(), says)
		} else {
			require.EqualError(t, r.ValidateOwner(), err.Error())
		}
	}
}

func TestARequestAtTheLimitsIsValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, lock.Request{Resource: "r", Nonce: "n", TTL: time.Millisecond}.Validate(), "an unnamed holder")
	require.NoError(t, lock.Request{Resource: "r", Nonce: "n"}.ValidateOwner())
	require.NoError(t, lock.Request{
		Resource: strings.Repeat("r", guard.MaxResource), Nonce: strings.Repeat("n", guard.MaxNonce), Holder: strings.Repeat("h", guard.MaxHolder),
		TTL: lock.MaxTTL, After: math.MaxInt64,
	}.Validate())
}

// Every call of every back end pays for it.
func TestAValidRequestCostsNoAllocation(t *testing.T) { // AllocsPerRun forbids Parallel
	r := validRequest()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if r.Validate() != nil || r.ValidateOwner() != nil {
			t.Error("the request is valid")
		}
	}))
}

func BenchmarkValidate(b *testing.B) {
	r := validRequest()
	r.Nonce = strings.Repeat("N", 26)
	b.ReportAllocs()
	for b.Loop() {
		if r.Validate() != nil {
			b.Fatal("the request is valid")
		}
	}
}
