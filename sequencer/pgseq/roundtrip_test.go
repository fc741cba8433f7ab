package pgseq_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
)

func TestNextIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(database(t))
	require.NoError(t, err)
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	dial, trips := servertest.CountTrips()
	config.ConnConfig.DialFunc = dial
	s := open(t, connectWith(t, config))
	next(t, s, 0) // connects, and prepares the statements
	before := trips.Load()
	for range 10 {
		next(t, s, 0)
	}
	require.EqualValues(t, 10, trips.Load()-before)
}
