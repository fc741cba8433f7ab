package fencewire_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/internal/wiretest"
)

// Neither side has goroutines of its own.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	first  = wiretest.Shared
	second = wiretest.Key("k2", "other-secret-of-thirty-two-bytes")
	forged = wiretest.Forged

	held = guard.Fence{Resource: "inventory:sku-42", Token: 33, Nonce: "5f0c", Holder: "worker-a"}
)

func verifier(t testing.TB, audience string, keys []fencewire.Key, opts ...fencewire.Option) *fencewire.Verifier {
	t.Helper()
	v, err := fencewire.NewVerifier(audience, keys, opts...)
	require.NoError(t, err)
	return v
}

// requireUnverified expects v to refuse values, with an error that says why and
// gives nothing away.
func requireUnverified(t testing.TB, v *fencewire.Verifier, values []string, why string) {
	t.Helper()
	ctx, err := v.Verify(context.Background(), values)
	require.ErrorIs(t, err, fencewire.ErrUnverified)
	require.ErrorContains(t, err, why)
	require.Empty(t, guard.Fences(ctx), "a refused request has no fence")
	require.NotContains(t, err.Error(), held.Nonce)
	require.NotContains(t, err.Error(), "secret-of-thirty-two")
	require.Less(t, len(err.Error()), 400)
	for _, value := range values {
		if mac := value[strings.LastIndexByte(value, ';')+1:]; len(mac) > 8 {
			require.NotContains(t, err.Error(), mac)
		}
	}
}
