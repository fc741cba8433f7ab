package etcdlock_test

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A link forwards to a member. While it is cut, nothing passes and nothing ends.
type link struct {
	listener net.Listener
	target   string
	open     *sync.RWMutex // locked while it is cut

	mu    sync.Mutex
	conns []net.Conn
}

func newLink(t testing.TB, to string) *link {
	t.Helper()
	u, err := url.Parse(to)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{listener: listener, target: u.Host, open: new(sync.RWMutex)}
	t.Cleanup(func() { _ = listener.Close() })
	go l.serve()
	return l
}

func (l *link) url() string { return "http://" + l.listener.Addr().String() }
func (l *link) cut()        { l.open.Lock() }
func (l *link) heal()       { l.open.Unlock() }

// drop ends the connections that there are.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

func (l *link) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, client, server)
		l.mu.Unlock()
		go l.forward(client, server)
		go l.forward(server, client)
	}
}

func (l *link) forward(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			l.open.RLock()
			_, werr := to.Write(buffer[:n])
			l.open.RUnlock()
			if werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
