// Package wiretest has what the tests of fences between services share: keys, both
// ends, and a store that refuses.
package wiretest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
)

// Two keys of one id: services have the first, and the other one is a guess.
var (
	Shared = Key("k1", "first-secret-of-thirty-two-bytes")
	Forged = Key("k1", "a guess of the secret, of 32 b.!")
)

// Key returns a key of a secret that a test can look for in what must not have it.
func Key(id, secret string) fencewire.Key {
	k, err := fencewire.NewKey(id, []byte(secret))
	if err != nil {
		panic(err)
	}
	return k
}

// Signer returns a signer for audience.
func Signer(t testing.TB, audience string, key fencewire.Key) *fencewire.Signer {
	t.Helper()
	s, err := fencewire.NewSigner(audience, key)
	require.NoError(t, err)
	return s
}

// Verifier returns a verifier that has the key [Shared].
func Verifier(t testing.TB, audience string, opts ...fencewire.Option) *fencewire.Verifier {
	t.Helper()
	v, err := fencewire.NewVerifier(audience, []fencewire.Key{Shared}, opts...)
	require.NoError(t, err)
	return v
}

// Values returns what a request under fences carries.
func Values(t testing.TB, s *fencewire.Signer, fences ...guard.Fence) []string {
	t.Helper()
	values, err := s.Sign(guard.NewContext(context.Background(), fences...))
	require.NoError(t, err)
	require.Len(t, values, len(fences))
	return values
}

// Bad returns what no service "inventory" may take, as the values of one request each:
// of a and b, or of who has no key.
func Bad(t testing.TB, a, b guard.Fence) map[string][]string {
	t.Helper()
	good := Values(t, Signer(t, "inventory", Shared), a)
	return map[string][]string{
		"forged":                   Values(t, Signer(t, "inventory", Forged), a),
		"of the key of another id": Values(t, Signer(t, "inventory", Key("k2", "first-secret-of-thirty-two-bytes")), a),
		"for another service":      Values(t, Signer(t, "billing", Shared), a),
		"truncated":                {good[0][:len(good[0])-1]},
		"not signed":               {"inventory:sku-42;9223372036854775807;nonce-of-a;x"},
		"empty":                    {""},
		"good, and forged":         slices.Concat(good, Values(t, Signer(t, "inventory", Forged), b)),
		"twice":                    slices.Concat(good, good),
		"too long":                 {strings.Repeat("x", fencewire.MaxBytes+1)},
		"too many":                 slices.Repeat(good, fencewire.MaxFences+1),
	}
}

// A BrokenStore refuses every raise.
type BrokenStore struct{ Err error }

// Raise implements guard.Guard.
func (b BrokenStore) Raise(context.Context, guard.Fence) error { return b.Err }
