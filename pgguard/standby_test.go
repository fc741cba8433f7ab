package pgguard_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

// A standby may be behind, so nothing on it may pass for the current state.
func TestS41_StandbyIsRefused(t *testing.T) {
	t.Parallel()
	db, server := crashable(t)
	ctx, a := db.raised("r", 33, "A")
	require.NoError(t, os.WriteFile(filepath.Join(server.Dir(), "data", "standby.signal"), nil, 0o644))
	require.NoError(t, server.Restart(t.Context()))
	db.pool.Reset()
	require.True(t, one[bool](db, "select pg_is_in_recovery()"))
	for name, call := range everyCall(ctx, db.guard) {
		if name != "Raise" { // repeating the fence in force changes nothing, see below
			err := call()
			require.ErrorContains(t, err, "SQLSTATE 25006", name)
			require.ErrorContains(t, err, "connect to the primary", name)
		}
	}
	require.NoError(t, db.guard.Raise(t.Context(), a))
	err := db.guard.Raise(t.Context(), fence("r", 34, "B"))
	require.ErrorContains(t, err, "SQLSTATE 25006")
	require.ErrorContains(t, err, "connect to the primary")
	require.NotErrorIs(t, db.guard.InTx(ctx, nothing), guard.ErrStale)
}
