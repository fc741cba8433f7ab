package model

import (
	"errors"
	"fmt"
)

// ErrDuplicate: two acquisitions were handed the same token, or the later one a smaller.
var ErrDuplicate = errors.New("tokens are not in the order of their acquisitions")

// Quorum is how two clients get a token from three Redis nodes of which each may forget a
// lock at any time: a majority grants the lock and tells its counter, then a majority has
// to take over the greatest counter plus one. A request may arrive at any time after it
// was sent, which is when the client has what the request depends on.
type Quorum struct {
	// Promise is what a node answers to the token of client c: its own rule is that of
	// promise.lua in lock/redlock.
	Promise func(n Node, c int, token uint8) bool
}

const (
	nodes     = 3
	quorum    = 2
	acquirers = 2
)

// A Node is one Redis.
type Node struct {
	counter uint8
	held    bool
	holder  uint8
	base    uint8 // the counter when the lock was granted
}

// An acquirer is a client between its first request and its token.
type acquirer struct {
	granted  [nodes]bool // asked, and answered
	promised [nodes]bool // asked
	accepted uint8
	highest  uint8 // of the counters that were told
	token    uint8 // that it proposes
	floor    uint8 // the greatest token that was handed out before it began
	begun    bool
	has      bool
}

// A QuorumState is the system at one moment.
type QuorumState struct {
	nodes   [nodes]Node
	clients [acquirers]acquirer
}

// CompareAndSet promises a token if the lock is still that of the client, and if no as
// great token was promised since it was granted.
func CompareAndSet(n Node, c int, token uint8) bool {
	return HolderOnly(n, c, token) && token > n.base
}

// HolderOnly has no look at the counter.
func HolderOnly(n Node, c int, _ uint8) bool { return n.held && int(n.holder) == c }

// Blind is a SET.
func Blind(Node, int, uint8) bool { return true }

// Run explores the model.
func (q Quorum) Run() Result[QuorumState] {
	return Explore(QuorumState{}, q.steps, func(s QuorumState) QuorumState { return s }, checkTokens)
}

func checkTokens(s QuorumState) error {
	a, b := s.clients[0], s.clients[1]
	switch {
	case a.has && b.has && a.token == b.token:
		return fmt.Errorf("%w: both have %d", ErrDuplicate, a.token)
	case a.has && a.token <= a.floor, b.has && b.token <= b.floor:
		return fmt.Errorf("%w: %d and %d", ErrDuplicate, a.token, b.token)
	}
	return nil
}

func (q Quorum) steps(s QuorumState, yield func(Step, QuorumState)) {
	for n := range s.nodes {
		if s.nodes[n].held {
			to := s
			to.nodes[n].held, to.nodes[n].holder, to.nodes[n].base = false, 0, 0
			yield(Step{nodeNames[n], "ends its lock"}, to)
		}
		for c := range s.clients {
			q.grant(s, c, n, yield)
			q.promise(s, c, n, yield)
		}
	}
}

var nodeNames = [nodes]string{"node 1", "node 2", "node 3"}

// grant is phase one at one node. Its answer counts for the token only if it comes before
// that is proposed; later it only takes the lock.
func (q Quorum) grant(s QuorumState, c, n int, yield func(Step, QuorumState)) {
	me, node := &s.clients[c], &s.nodes[n]
	if me.granted[n] || node.held {
		return
	}
	if !me.begun {
		me.begun = true
		if other := s.clients[1-c]; other.has {
			me.floor = other.token
		}
	}
	me.granted[n] = true
	*node = Node{counter: node.counter, held: true, holder: uint8(c), base: node.counter} //nolint:gosec // 0 or 1
	what := "grants its lock late to "
	if me.token == 0 {
		me.highest = max(me.highest, node.counter)
		what = "grants its lock to "
	}
	yield(Step{nodeNames[n], what + clientNames[c]}, s)
}

// promise is phase two at one node. The first of them fixes the token.
func (q Quorum) promise(s QuorumState, c, n int, yield func(Step, QuorumState)) {
	me, node := &s.clients[c], &s.nodes[n]
	if me.token == 0 {
		if grants(me) < quorum {
			return
		}
		me.token = me.highest + 1
		yield(Step{clientNames[c], "has a majority, and proposes the next token"}, s)
		return
	}
	if me.promised[n] {
		return
	}
	me.promised[n] = true
	if !q.Promise(*node, c, me.token) {
		yield(Step{nodeNames[n], "refuses the token of " + clientNames[c]}, s)
		return
	}
	node.counter = max(node.counter, me.token)
	me.accepted++
	me.has = me.accepted >= quorum
	yield(Step{nodeNames[n], "takes over the token of " + clientNames[c]}, s)
}

func grants(a *acquirer) (n int) {
	for _, yes := range a.granted {
		if yes {
			n++
		}
	}
	return n
}

// String shows the counters of the nodes and the tokens of the clients.
func (s QuorumState) String() string {
	return fmt.Sprintf("counters %d %d %d, tokens %d %d", s.nodes[0].counter, s.nodes[1].counter, s.nodes[2].counter, s.clients[0].token, s.clients[1].token)
}
