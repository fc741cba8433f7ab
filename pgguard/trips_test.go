package pgguard_test

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A tripCounter counts round trips: how often the direction of the traffic turns
// from the server to the client.
type tripCounter struct {
	mu     sync.Mutex
	trips  int
	asking bool
}

func (c *tripCounter) count(config *pgxpool.Config) {
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return countedConn{conn, c}, nil
	}
}

// reset returns the round trips since the last reset.
func (c *tripCounter) reset() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.trips
	c.trips, c.asking = 0, false
	return n
}

type countedConn struct {
	net.Conn
	counter *tripCounter
}

func (c countedConn) Write(b []byte) (int, error) {
	c.counter.mu.Lock()
	if !c.counter.asking {
		c.counter.asking = true
		c.counter.trips++
	}
	c.counter.mu.Unlock()
	return c.Conn.Write(b)
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.counter.mu.Lock()
		c.counter.asking = false
		c.counter.mu.Unlock()
	}
	return n, err
}
