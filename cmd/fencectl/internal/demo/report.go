package demo

import "github.com/go-fencing/fencing/guard"

// An Opening says what the demo plays on.
type Opening struct {
	Redis    string `json:"redis"`
	Store    Store  `json:"store"`
	Postgres string `json:"postgres,omitempty"`
	SQLite   string `json:"sqlite,omitempty"`
	Resource string `json:"resource"`
	TTL      string `json:"ttl"`
	Freezes  bool   `json:"freezes"` // a pause is a SIGSTOP
}

// An Act begins.
type Act struct {
	Act   int    `json:"act"`
	Title string `json:"title"`
	Note  string `json:"note"`
}

// An Event is one line of the timeline.
type Event struct {
	Act     int         `json:"act"`
	Seconds float64     `json:"seconds"`
	Actor   string      `json:"actor"` // "A", "B", "C", "Redis"
	What    string      `json:"what"`
	Token   guard.Token `json:"token,omitzero"`
	Text    string      `json:"text"`
	Error   string      `json:"error,omitempty"`    // verbatim
	Server  string      `json:"postgres,omitempty"` // Postgres' own words
	State   string      `json:"sqlstate,omitempty"`
}

// The values of Event.What.
const (
	Waited   = "waited"
	Acquired = "acquired"
	Proposed = "proposed" // by Redis; a store has still to take it
	Repaired = "repaired"
	Read     = "read"
	Checked  = "checked"
	Frozen   = "frozen"
	Woken    = "woken"
	Wrote    = "wrote"
	Refused  = "refused"
	Released = "released"
	Lost     = "lost"
	Forgot   = "forgot"

	Restarted = "restarted" // the act begins again; what came before does not count
)

// A Result is what an act came to.
type Result struct {
	Act      int    `json:"act"`
	Guarded  bool   `json:"guarded"`
	Sold     int    `json:"sold"` // by writes that were acknowledged
	Stock    int    `json:"stock"`
	Want     int    `json:"want"`     // the stock that what was sold leaves
	Refused  int    `json:"refused"`  // stale writes that the store refused
	Repaired int    `json:"repaired"` // tokens that Redis had to be taken past
	Forgot   bool   `json:"forgot"`   // Redis lost its memory
	Clean    bool   `json:"clean"`    // nothing sold is missing in the stock
	Text     string `json:"text"`
}

// A Verdict is what the demo came to.
type Verdict struct {
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}
