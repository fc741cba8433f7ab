package localserver

import (
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// StartMiniredis starts a Redis inside this process, on loopback so that its child
// processes find it too, for programs that must run where no redis-server is
// installed. It returns its address; stop ends it.
func StartMiniredis() (addr string, stop func(), err error) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return "", nil, fmt.Errorf("localserver: start the in-process Redis: %w", err)
	}
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go func() { // miniredis lets no time pass by itself
		defer close(stopped)
		clock := time.NewTicker(5 * time.Millisecond)
		defer clock.Stop()
		last := time.Now()
		for {
			select {
			case <-clock.C:
				now := time.Now()
				server.FastForward(now.Sub(last))
				last = now
			case <-stopping:
				return
			}
		}
	}()
	return server.Addr(), func() {
		close(stopping)
		<-stopped
		server.Close()
	}, nil
}
