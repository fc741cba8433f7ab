package faultlink

import (
	"net"
	"sync"
)

// A pair is one connection of a client and the one to the server that belongs to it.
type pair struct {
	link   *Link
	client net.Conn

	// Guarded by the link's mutex.
	server net.Conn
	doomed bool // the next reply is lost, and the connection with it
	lossy  bool // replies were lost

	once  sync.Once
	ended chan struct{}
}

// end resets both connections. The caller has the link's mutex.
func (p *pair) end() { p.finish(abort) }

func (p *pair) finish(how func(net.Conn)) {
	p.once.Do(func() {
		close(p.ended)
		how(p.client)
		if p.server != nil {
			how(p.server)
		}
	})
}

// abort closes with a reset, as a network element does that forgot the connection.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (p *pair) serve() {
	l := p.link
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		p.end()
		delete(l.pairs, p)
	}()
	if !l.pass(p) {
		return
	}
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	l.mu.Lock()
	p.server = server
	select {
	case <-p.ended:
		abort(server)
	default:
	}
	l.mu.Unlock()

	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(server, p.client, func(request []byte) bool { l.doom(p, request); return true }) })
	pumps.Go(func() { p.pump(p.client, server, func([]byte) bool { return !l.loses(p) }) })
	pumps.Wait()
}

// pump forwards from one side to the other what keep lets through, until either
// ends, and passes the end on. Not by a reset, which would overtake the last words
// of a server that says why it ends.
func (p *pair) pump(to, from net.Conn, keep func([]byte) bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !p.link.pass(p) {
			return
		}
		if n > 0 && keep(buf[:n]) {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	p.finish(func(c net.Conn) { _ = c.Close() })
}
