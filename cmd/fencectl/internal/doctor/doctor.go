// Package doctor looks for what makes fencing unsafe, or a nuisance, in the servers that it
// rests on. It only reads.
package doctor

import (
	"encoding/json"
	"fmt"
)

// A Level says how bad a finding is.
type Level int

// The levels. Only Fail makes the whole answer bad.
const (
	OK   Level = iota // as it should be
	Warn              // works, and will surprise you
	Fail              // does not work, or promises what it cannot keep
)

func (l Level) String() string { return [...]string{"ok", "warn", "FAIL"}[l] }

// MarshalJSON writes ok, warn or fail.
func (l Level) MarshalJSON() ([]byte, error) {
	return json.Marshal([...]string{"ok", "warn", "fail"}[l])
}

// A Finding is the outcome of one check.
type Finding struct {
	Server string `json:"server"`
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Says   string `json:"says"`
	Do     string `json:"do,omitempty"` // what to do about it
}

// findings collects those of one server.
type findings struct {
	server string
	all    []Finding
}

func (f *findings) add(level Level, check, says, do string) {
	f.all = append(f.all, Finding{f.server, check, level, says, do})
}

func (f *findings) ok(check, format string, args ...any) {
	f.add(OK, check, fmt.Sprintf(format, args...), "")
}

// unseen notes what the server does not allow to look at, which is no fault of its own.
func (f *findings) unseen(check, says, do string) {
	f.add(Warn, check, "not looked at: "+says, do)
}

// Unseen is the finding that a server, or the rest of it, could not be looked at.
func Unseen(server, why string) Finding {
	return Finding{server, "server", Fail, "not looked at: " + why, "see to it that it answers, and run this again"}
}

// count is a number of things with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Worst is the worst level of some findings.
func Worst(all []Finding) Level {
	worst := OK
	for _, f := range all {
		worst = max(worst, f.Level)
	}
	return worst
}

// nearTheEnd is a token that no resource gets to by counting. Whoever raised it has
// poisoned the fence, and those that come after it cannot go far.
const nearTheEnd = 1 << 62
