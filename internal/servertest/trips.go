package servertest

import (
	"context"
	"net"
	"sync/atomic"
)

// CountTrips returns a dial function, and the number of round trips on all of its
// connections together: how often they turned from sending to receiving. It is for
// one connection that is used at a time.
func CountTrips() (dial func(ctx context.Context, network, addr string) (net.Conn, error), trips *atomic.Int64) {
	trips, sending := new(atomic.Int64), new(atomic.Bool)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return meter{conn, trips, sending}, err
	}, trips
}

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
