package demo

import (
	"time"

	"github.com/go-fencing/fencing/guard"
)

// The director and a worker talk in JSON lines over the worker's stdin and stdout:
// one setup, then one reply to each order. The addresses go this way and not by
// argument, because they may have passwords.

type setup struct {
	Name   string        `json:"name"`
	Redis  string        `json:"redis"`
	Prefix string        `json:"prefix"` // of the keys in Redis
	TTL    time.Duration `json:"ttl"`
	Store  Store         `json:"store"`

	// of Postgres
	Postgres    string `json:"postgres,omitempty"`
	Schema      string `json:"schema,omitempty"`
	FenceSchema string `json:"fence_schema,omitempty"`

	SQLite string `json:"sqlite,omitempty"` // the file
}

type order struct {
	Do      action `json:"do"`
	Guarded bool   `json:"guarded,omitempty"` // for acquire: with a guard until the release
	Stock   int    `json:"stock,omitempty"`   // for write
}

type action string

const (
	doAcquire action = "acquire"
	doRead    action = "read"
	doCheck   action = "check"
	doWrite   action = "write"
	doRelease action = "release"
)

type reply struct {
	Fence  guard.Fence   `json:"fence,omitzero"` // none if there is no lease: it has no text
	Took   time.Duration `json:"took"`
	Left   time.Duration `json:"left"` // of the lease
	Stock  int           `json:"stock"`
	Events []event       `json:"events,omitempty"` // of acquire
	Error  *failure      `json:"error,omitempty"`
}

// An event is a guard.Event that can travel.
type event struct {
	Kind  guard.EventKind `json:"kind"`
	Token guard.Token     `json:"token"`
	Took  time.Duration   `json:"took"`
	Error string          `json:"error,omitempty"`
}

// A failure is an error that can travel.
type failure struct {
	Text     string `json:"text"`
	Postgres string `json:"postgres,omitempty"` // the server's own words
	SQLState string `json:"sqlstate,omitempty"`
	Stale    bool   `json:"stale,omitempty"` // errors.Is(err, guard.ErrStale)

	Current guard.Token `json:"current,omitzero"` // that the store has in place of a stale one
	Lost    bool        `json:"lost,omitempty"`   // errors.Is(err, lock.ErrLost)
}
