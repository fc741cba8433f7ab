package model

import (
	"github.com/go-fencing/fencing/guard"
)

// Bounds are the limits of an exploration.
type Bounds struct {
	Clients      int         // up to 3
	Acquisitions int         // of each client
	Tokens       guard.Token // the greatest that may be drawn
}

const maxClients = 3

// newcomer is the client that nobody has seen: it begins only when all else is over.
const newcomer = maxClients

// A fence is a [guard.Fence] in two bytes. Its nonce is the number of the client and that
// of the acquisition.
type fence struct{ token, nonce uint8 }

const resource = "counter"

func (f fence) real() guard.Fence {
	return guard.Fence{Resource: resource, Token: guard.Token(f.token), Nonce: nonceNames[f.nonce]}
}

func (f fence) record() guard.Record {
	if f.token == 0 {
		return guard.Record{}
	}
	return guard.Record{Fence: f.real()}
}

// A State is all of the system at one moment. Tokens, ordinals and values are so small
// that a byte holds them.
type State struct {
	// Redis.
	counter uint8
	lock    fence // the zero fence if it is free

	// Postgres.
	fence fence // the fence row, the zero fence if there is none
	row   row
	open  work // the transaction that its client has given up

	late    fence // a raise that its client has given up, still under way
	clients [maxClients + 1]client

	// What only the checks know.
	raises   uint8 // how many fences were raised, so the ordinal of the last one
	ordinal  uint8 // of the fence row
	commits  uint8
	latest   uint8 // the greatest ordinal under which something has committed
	disorder bool  // something has committed under a smaller one after that
}

// A row is the counter that the clients increment, with its version column.
type row struct{ value, token uint8 }

// work is a transaction: the fence that it enters, and what its client has read.
type work struct {
	at      progress
	fence   fence
	ordinal uint8 // of its raise
	hasRead bool
	read    uint8
}

type progress uint8

const (
	nothing progress = iota
	sent             // has yet to enter
	entered
)

type phase uint8

const (
	idle    phase = iota
	asking        // acquire was sent, no reply came
	granted       // it has a token
	refused       // its token is too small for the store
	raised
	ready  // it has read
	inside // its transaction has entered
	done   // it knows that it has committed
)

type client struct {
	phase phase
	begun uint8 // acquisitions
	work  work  // its fence, what it has read, and its transaction
	after uint8 // the store's token that refused its own
}

// nonce of the acquisition that client c is at.
func (s *State) nonce(c int) uint8 { return uint8(c*maxAcquisitions) + s.clients[c].begun }

const maxAcquisitions = 4

var (
	clientNames = [maxClients + 1]string{"A", "B", "C", "new client"}
	nonceNames  = names()
)

// names of nonces: a1 is that of A's first acquisition.
func names() (list [(maxClients+1)*maxAcquisitions + 1]string) {
	for i := range list[1:] {
		list[i+1] = string(rune('a'+i/maxAcquisitions)) + string(rune('1'+i%maxAcquisitions))
	}
	return list
}
