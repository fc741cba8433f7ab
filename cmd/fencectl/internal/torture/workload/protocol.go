package workload

import (
	"slices"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
)

// A Variant says what keeps a late writer from the data.
type Variant string

// The variants. The first three are what this project promises something about; the
// others are negative controls, each without one part of the protection.
const (
	PgGuard     Variant = "pgguard"
	SQLGuard    Variant = "sqlguard"
	GormGuard   Variant = "gormguard"
	NoGuard     Variant = "no guard"
	RowRule     Variant = "row rule only"
	PlainCheck  Variant = "plain SELECT check"
	LaxRaise    Variant = ">= at the raise"
	PopularLock Variant = "bsm/redislock alone"
)

// Guarded and Controls are all variants.
var (
	Guarded  = []Variant{PgGuard, SQLGuard, GormGuard}
	Controls = []Variant{NoGuard, RowRule, PlainCheck, LaxRaise, PopularLock}
)

// IsGuarded reports whether the variant must come out clean.
func (v Variant) IsGuarded() bool { return slices.Contains(Guarded, v) }

// HasTokens reports whether the lock of the variant hands out tokens.
func (v Variant) HasTokens() bool { return v != PopularLock }

// A Kind is what an operation does besides its append.
type Kind string

// The kinds.
const (
	Append   Kind = "append"   // nothing
	Transfer Kind = "transfer" // moves an amount between two rows, whose sum stays
	Toggle   Kind = "toggle"   // inserts a row, or deletes it if it is there
)

// Kinds are all of them.
var Kinds = []Kind{Append, Transfer, Toggle}

// A Way is how a guarded variant gets to its transaction; the controls have but one.
type Way string

// The ways.
const (
	Plain        Way = ""
	Repeatable   Way = "repeatable read"
	Serializable Way = "serializable"
	Savepoint    Way = "savepoint" // writes nonsense first, and rolls back to a savepoint before that
	ByHand       Way = "by hand"   // another door of the same guard: Enter in a transaction of the caller's, the wrapped driver, GORM's Begin
	Deferred     Way = "deferred"  // pgguard's WithDeferredBegin; elsewhere as Plain
	Once         Way = "once"      // pgguard's, under its name until the outcome is known, and once more; elsewhere as Plain
	Single       Way = "single"    // one statement, without a transaction of the caller's; for an append alone
)

// Ways are all of them.
var Ways = []Way{Plain, Repeatable, Serializable, Savepoint, ByHand, Deferred, Once, Single}

// Total is the sum of the two accounts of a resource.
const Total = 1_000_000

// A Step is a point in an operation. A worker that holds at one has done what it
// says and nothing more.
type Step string

// The steps, in their order.
const (
	Granted  Step = "granted"  // the lock is taken, the fence not raised
	Raised   Step = "raised"   // the fence is raised, the lock not yet handed out
	Leased   Step = "leased"   // the lock is handed out, nothing was read
	Between  Step = "between"  // the first half was read
	Read     Step = "read"     // everything was read, no transaction was begun
	Entered  Step = "entered"  // the transaction has begun and was let in
	Written  Step = "written"  // the rows are written and not committed
	Done     Step = "done"     // the outcome is known
	Released Step = "released" // the lock is given up, or was lost; the worker is free
)

// HoldingSteps are those at which an operation can wait.
var HoldingSteps = []Step{Granted, Raised, Leased, Between, Read, Entered, Written}

// A Call is something that a worker asks of a store and that takes time.
type Call string

// The calls.
const (
	CallRaise  Call = "raise"
	CallRead   Call = "read"
	CallCommit Call = "commit" // the whole transaction
)

// A Config is what a worker is started with: the first line of its input.
type Config struct {
	Name    string
	Variant Variant

	Redis, Postgres         string // URLs
	RedisLink, PostgresLink string // host:port of the links that lead there

	Prefix      string // of the Redis keys
	FenceSchema string
	DataSchema  string

	TTL         time.Duration
	LockTimeout time.Duration // of a raise
	IdleTimeout time.Duration // of a transaction
}

// An Order is a further line of the input: an operation, or leave to go on for one
// that holds.
type Order struct {
	Go bool `json:",omitempty"`

	Op       string
	Kind     Kind
	Resource string
	Also     string // a second resource, which gets an append in the same transaction
	Amount   int64
	Way      Way
	Hold     []Step        // where to wait
	Obedient bool          // stops when its lease is lost, as it should; else it goes on, as if it had paused right after its last look
	Repeat   bool          // raises again before it writes, as if the first reply had been lost
	Patience time.Duration // for the lock
}

// AlsoOp is the name of the append to the second resource.
func AlsoOp(op string) string { return op + "+" }

// A Report is one line of the output.
type Report struct {
	At     int64 // by Now
	Worker string
	Op     string `json:",omitempty"`

	Resource string `json:",omitempty"` // of a fence or a call

	Step  Step   `json:",omitempty"`
	Event string `json:",omitempty"` // of the locker

	// A call is reported before and after, with the same number.
	Call   Call `json:",omitempty"`
	Number int  `json:",omitempty"`
	Ended  bool `json:",omitempty"`

	Token   guard.Token     `json:",omitempty"`
	Nonce   string          `json:",omitempty"`
	Outcome history.Outcome `json:",omitempty"` // of a call, and of the operation at Done
	Value   string          `json:",omitempty"` // the operation that was read last
	Torn    string          `json:",omitempty"` // at Done: what it read does not fit together
	Error   string          `json:",omitempty"`
	Is      []string        `json:",omitempty"` // the sentinels that the error is
}
