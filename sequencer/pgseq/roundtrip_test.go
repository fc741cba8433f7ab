package pgseq_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// A meter counts how often a connection turned from sending to receiving.
type meter struct {
	net.Conn
	trips   *atomic.Int64
	sending *atomic.Bool
}

func (m meter) Write(b []byte) (int, error) {
	m.sending.Store(true)
	return m.Conn.Write(b)
}

func (m meter) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if n > 0 && m.sending.Swap(false) {
		m.trips.Add(1)
	}
	return n, err
}

func TestNextIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(database(t))
	require.NoError(t, err)
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	trips, sending := new(atomic.Int64), new(atomic.Bool)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return meter{conn, trips, sending}, err
	}
	s := open(t, connectWith(t, config))
	next(t, s, 0) // connects, and prepares the statements
	before := trips.Load()
	for range 10 {
		next(t, s, 0)
	}
	require.EqualValues(t, 10, trips.Load()-before)
}
