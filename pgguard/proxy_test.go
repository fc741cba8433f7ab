package pgguard_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// commitMessage is how pgx sends COMMIT.
const commitMessage = "Q\x00\x00\x00\x0bcommit\x00"

// A fault is what the proxy does to one message.
type fault int

const (
	loseReply   fault = iota + 1 // the server gets it, the client never sees the answer
	loseRequest                  // the server never gets it; both connections end
	partition                    // the server never gets it, and neither side sees an end
	hang                         // the server gets it, the client sees neither an answer nor an end
)

// A proxy stands before a Postgres server and fails on one message.
type proxy struct {
	t      testing.TB
	url    string // of the same database, through the proxy
	target string

	mu      sync.Mutex
	pattern []byte // what the message has in it; nil: none
	fault   fault
	hook    func() // runs after the fault and before the client sees it
	hits    int
	open    []net.Conn
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	config, err := pgx.ParseConfig(target)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u, err := url.Parse(target)
	require.NoError(t, err)
	p := &proxy{t: t, target: u.Host}
	require.NotZero(t, config.Port)
	u.Host = listener.Addr().String()
	p.url = u.String()
	t.Cleanup(func() { _ = listener.Close(); p.cut() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

// failOn arms the proxy for the next message that has pattern in it.
func (p *proxy) failOn(pattern string, f fault, hook func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pattern, p.fault, p.hook = []byte(pattern), f, hook
}

// cut ends every connection. Without it pgx waits for the answer to a hung one
// when the pool is closed.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		_ = c.Close()
	}
}

func (p *proxy) faults() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.open = append(p.open, client, server)
	p.mu.Unlock()
	replies := make(chan struct{}) // closed: swallow what the server says from now on
	swallowed := make(chan struct{}, 1)
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			select {
			case <-replies:
				if n > 0 || err != nil {
					select {
					case swallowed <- struct{}{}:
					default:
					}
				}
				if err != nil {
					return
				}
				continue
			default:
			}
			if n > 0 {
				_, _ = client.Write(buf[:n])
			}
			if err != nil {
				_ = client.Close()
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if f, hook := p.match(buf[:n]); f != 0 {
			close(replies) // nor does the client see that the server ends
			if f == loseReply || f == hang {
				_, _ = server.Write(buf[:n])
				<-swallowed
			}
			if hook != nil {
				hook()
			}
			if f == loseReply || f == loseRequest {
				_ = server.Close()
				_ = client.Close()
			} else {
				_, _ = io.Copy(io.Discard, client)
			}
			return
		}
		if n > 0 {
			_, _ = server.Write(buf[:n])
		}
		if err != nil {
			_ = server.Close()
			return
		}
	}
}

func (p *proxy) match(message []byte) (fault, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pattern == nil || !bytes.Contains(message, p.pattern) {
		return 0, nil
	}
	p.pattern = nil
	p.hits++
	return p.fault, p.hook
}
