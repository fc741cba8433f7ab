// Package worker is the program under test, as processes of its own, and their
// handle in the test. A worker does appends: acquire, raise, read, write, commit,
// release, all through the public API. It reports each step, waits at those where
// it was told to, and can be stopped, killed and cut off anywhere.
package worker

import (
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
)

// configEnv turns the test binary into a worker; it has a Config in JSON.
const configEnv = "FENCING_TEST_WORKER"

// A Mode says what stops a late writer.
type Mode string

// The modes. All but Fenced are negative controls.
const (
	Fenced    Mode = "fenced"     // the fence: raise and enter
	RowRule   Mode = "row rule"   // a version column on the row, pgguard.UpdateRow without a fence
	Unguarded Mode = "unguarded"  // nothing but the lock
	WriteOnly Mode = "write only" // the fence checked at the write, but raised only then
)

// A Config is what a worker is started with.
type Config struct {
	Name     string
	Redis    string // URL
	Postgres string // URL
	Prefix   string // of the Redis keys
	Mode     Mode

	TTL         time.Duration
	LockTimeout time.Duration // of a raise
	IdleTimeout time.Duration // of a transaction
}

// A Step is a point in an append. A worker that holds at one has done what it says
// and nothing more.
type Step string

// The steps, in their order. Between two of them a worker may be stopped.
const (
	Granted  Step = "granted"  // the lock is taken, the fence not raised
	Raised   Step = "raised"   // the fence is raised, Acquire has not returned
	Leased   Step = "leased"   // Acquire has returned, nothing was read
	Read     Step = "read"     // the last row was read, no transaction was begun
	Entered  Step = "entered"  // the transaction has begun and entered the fence
	Written  Step = "written"  // the rows are written and not committed
	Done     Step = "done"     // the outcome is known
	Released Step = "released" // the lock is given up, or was lost
)

// HoldingSteps are those at which an append can wait.
var HoldingSteps = []Step{Granted, Raised, Leased, Read, Entered, Written}

// An Order is one line on the standard input of a worker: an append, or leave to go
// on for one that waits.
type Order struct {
	Go bool `json:",omitempty"`

	Op       string
	Resource string
	Amount   int64
	Hold     []Step        // where to wait
	Obedient bool          // stops when its lease is lost, as it should; else it goes on, as if it had paused right after its last look
	Single   bool          // one statement of its own in place of a transaction
	Patience time.Duration // for the lock
}

// A Report is one line on the standard output of a worker.
type Report struct {
	Worker    string
	Op        string          `json:",omitempty"`
	Resource  string          `json:",omitempty"`
	Step      Step            `json:",omitempty"`
	Event     string          `json:",omitempty"` // of the locker, in place of a step
	Fence     *guard.Fence    `json:",omitempty"`
	Backend   uint32          `json:",omitempty"` // the server process of the transaction
	Outcome   history.Outcome `json:",omitempty"`
	Error     string          `json:",omitempty"`
	Is        []string        `json:",omitempty"` // the sentinels that the error is
	BlockedBy int32           `json:",omitempty"` // backend in the way of a raise
	Took      time.Duration
}
