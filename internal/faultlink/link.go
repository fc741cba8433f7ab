// Package faultlink is a TCP link between a client and a server that can fail in
// the ways in which networks do: it stops forwarding without an end of any
// connection, it loses replies, it resets connections, it leads somewhere else.
package faultlink

import (
	"bytes"
	"net"
	"sync"
)

// A Link forwards what comes to its own loopback address. Its methods are safe
// for concurrent use.
type Link struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed at the next change of the state below
	closed  bool
	target  string
	state   state
	pattern []byte // of the request whose reply is to be lost; nil: none
	lost    int
	pairs   map[*pair]struct{}
}

type state int

const (
	open   state = iota
	cut          // nothing is forwarded
	silent       // requests are forwarded, replies are lost
)

// New returns a link to target, an address of the form host:port.
func New(target string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{listener: listener, target: target, changed: make(chan struct{}), pairs: make(map[*pair]struct{})}
	l.serving.Go(l.accept)
	return l, nil
}

// Addr returns the address that leads to the target.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Cut stops forwarding. No connection ends, and new ones are accepted; what is
// sent meanwhile arrives after Heal, as with TCP over a network that was down.
func (l *Link) Cut() { l.set(func() { l.state = cut }) }

// Silence loses every reply from now on, while requests still arrive.
func (l *Link) Silence() { l.set(func() { l.state = silent }) }

// Heal forwards again. Connections that lost replies are reset: a client could not
// tell which request the next reply belongs to.
func (l *Link) Heal() {
	l.set(func() { l.state = open })
	l.reset(func(p *pair) bool { return p.lossy })
}

// Reset ends every open connection. New ones are served.
func (l *Link) Reset() { l.reset(func(*pair) bool { return true }) }

// Retarget leads new connections to another server, and resets the open ones.
func (l *Link) Retarget(target string) {
	l.set(func() { l.target = target })
	l.Reset()
}

// LoseReply loses the reply to the next request that contains pattern, and then
// resets its connection. The server has carried the request out by then.
func (l *Link) LoseReply(pattern string) { l.set(func() { l.pattern = []byte(pattern) }) }

// Lost returns how many replies have come from the server and were lost.
func (l *Link) Lost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Close ends the link, and every connection.
func (l *Link) Close() error {
	err := l.listener.Close()
	l.set(func() { l.closed = true })
	l.Reset()
	l.serving.Wait()
	return err
}

func (l *Link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) reset(which func(*pair) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		if which(p) {
			p.end()
		}
	}
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		p := &pair{link: l, client: client, ended: make(chan struct{})}
		l.mu.Lock()
		l.pairs[p] = struct{}{}
		if l.closed {
			p.end()
		}
		l.mu.Unlock()
		l.serving.Go(p.serve)
	}
}

// pass waits while the link is cut. It returns false if p has ended.
func (l *Link) pass(p *pair) bool {
	for {
		l.mu.Lock()
		shut, changed := l.state == cut, l.changed
		l.mu.Unlock()
		if !shut {
			select {
			case <-p.ended:
				return false
			default:
				return true
			}
		}
		select {
		case <-changed:
		case <-p.ended:
			return false
		}
	}
}

// doom decides before a request is forwarded whether its reply will be lost.
func (l *Link) doom(p *pair, request []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pattern != nil && bytes.Contains(request, l.pattern) {
		l.pattern = nil
		p.doomed = true
	}
}

// loses reports whether the reply that has just come on p is lost.
func (l *Link) loses(p *pair) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.doomed && !p.lossy && l.state != silent {
		return false
	}
	l.lost++
	p.lossy = true
	if p.doomed {
		p.end()
	}
	return true
}
