package zklock

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// A wire is one connection to a server. The client package neither tells the session
// timeout that was granted, nor bounds the time in which it is, so the wire does.
type wire struct {
	net.Conn
	session *session
	limit   time.Time    // for the session to be granted
	greeted atomic.Bool  // it is
	heard   atomic.Int64 // when the server last said something, as time since the session began

	greeting []byte // what was read until it is granted; owned by who reads
}

// dial is the [zk.Dialer] of the client.
func (s *session) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if granted, _ := s.state(); s.once && granted > 0 {
		s.end()
		go s.conn.Close()
	}
	if s.life.Err() != nil {
		return nil, errClosed
	}
	conn, err := s.config.dial(network, address, timeout)
	if err != nil {
		s.note(err)
		return nil, err
	}
	w := &wire{Conn: conn, session: s, limit: time.Now().Add(min(s.config.timeout/2, answerWait))}
	w.heard.Store(int64(time.Since(s.begun)))
	s.mu.Lock()
	s.wire = w
	s.mu.Unlock()
	if s.life.Err() != nil { // closed meanwhile, and the client would begin a session
		_ = conn.Close()
		return nil, errClosed
	}
	return w, nil
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(int64(time.Since(w.session.begun)))
	}
	if !w.greeted.Load() {
		w.listen(p[:n])
		if err != nil {
			w.session.note(fmt.Errorf("%s granted no session: %w", w.RemoteAddr(), err))
		}
	}
	return n, err
}

// Write implements [net.Conn]. The client hands its error to the caller, who must see
// that the request may have arrived.
func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if err != nil {
		err = fmt.Errorf("%w: %w", zk.ErrConnectionClosed, err)
	}
	return n, err
}

// SetReadDeadline implements [net.Conn].
func (w *wire) SetReadDeadline(t time.Time) error {
	if !w.greeted.Load() {
		t = w.limit
	}
	return w.Conn.SetReadDeadline(t)
}

// listen reads the server's first reply: its length, the protocol's version, the
// timeout in milliseconds, the session's id, a password.
func (w *wire) listen(p []byte) {
	w.greeting = append(w.greeting, p...)
	if len(w.greeting) < 4 || len(w.greeting) < 4+int(binary.BigEndian.Uint32(w.greeting)) {
		return
	}
	if len(w.greeting) >= 20 && binary.BigEndian.Uint64(w.greeting[12:]) != 0 { // 0: the old session has expired
		w.session.granted(time.Duration(binary.BigEndian.Uint32(w.greeting[8:])) * time.Millisecond)
	}
	w.greeting = nil
	w.greeted.Store(true)
}

// hosts are the servers in turn. Other than the client's own they are looked up at each
// connection: a server may come back with another address.
type hosts struct {
	mu      sync.Mutex
	servers []string
	next    int
	failed  int // tries since the last success
}

// Init implements [zk.HostProvider].
func (h *hosts) Init(servers []string) error {
	h.servers = servers
	return nil
}

// Len implements [zk.HostProvider].
func (h *hosts) Len() int { return len(h.servers) }

// Next implements [zk.HostProvider].
func (h *hosts) Next() (server string, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	if h.failed++; h.failed > len(h.servers) {
		h.failed, again = 1, true
	}
	return server, again
}

// Connected implements [zk.HostProvider].
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = 0
}
