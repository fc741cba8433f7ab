package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// An Outcome is what an append came to, as far as its worker knows.
type Outcome string

// The outcomes.
const (
	Committed Outcome = "committed" // acknowledged
	Refused   Outcome = "refused"   // by a guard, and nothing was written
	Failed    Outcome = "failed"    // otherwise, and nothing was written
	Unknown   Outcome = "unknown"   // the commit was sent and not answered, or the worker died
	Forgotten Outcome = "forgotten" // acknowledged, and undone by the restore of an older database
)

// A Kind is a rule that a history can break.
type Kind string

// The rules.
const (
	LostAppend  Kind = "lost append"  // acknowledged and not there
	Repeated    Kind = "repeated"     // there twice
	Ghost       Kind = "ghost"        // there although it was refused, or nobody wrote it
	LostUpdate  Kind = "lost update"  // two appends were computed from the same one
	BrokenChain Kind = "broken chain" // an append was computed from something that is not there
	Balance     Kind = "balance"      // it is not the sum of the appends
	TokenOrder  Kind = "token order"  // a token is smaller than one that was committed before
	SharedToken Kind = "shared token" // two acquisitions wrote under one token
	CommitOrder Kind = "commit order" // an append was committed before the one that it was computed from
)

// A Violation is one rule that was broken.
type Violation struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`
}

// String returns both parts.
func (v Violation) String() string { return string(v.Kind) + ": " + v.Text }

// Check compares what is there with what the workers know: every acknowledged
// append is there exactly once, a refused one is not, an unknown one either way;
// and each resource has one unbroken chain, along which tokens never decrease.
//
// That the chain is the order of commits: an append names the one it has read, and
// only what is committed can be read, so an append is committed after its
// predecessor, and along the chain after all that come before it. The order of
// pg_xact_commit_timestamp is a second witness, which is also there where the
// chain forks. (Transaction ids are none: they tell when a transaction first
// wrote, not when it was committed.)
func Check(rows []Row, balances map[string]int64, outcomes map[string]Outcome) []Violation {
	c := &checker{}
	c.outcomes(rows, outcomes)
	byResource := make(map[string][]Row)
	for resource := range balances {
		byResource[resource] = nil
	}
	for _, r := range rows {
		byResource[r.Resource] = append(byResource[r.Resource], r)
	}
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		c.resource(resource, byResource[resource], balances[resource])
	}
	return c.found
}

type checker struct{ found []Violation }

func (c *checker) add(k Kind, format string, args ...any) {
	c.found = append(c.found, Violation{k, fmt.Sprintf(format, args...)})
}

func (c *checker) outcomes(rows []Row, outcomes map[string]Outcome) {
	times := make(map[string]int)
	for _, r := range rows {
		times[r.Op]++
	}
	for _, op := range slices.Sorted(maps.Keys(outcomes)) {
		switch outcome, n := outcomes[op], times[op]; {
		case n > 1:
			c.add(Repeated, "%s (%s) is there %d times", op, outcome, n)
		case n == 0 && outcome == Committed:
			c.add(LostAppend, "%s was acknowledged and is not there", op)
		case n == 1 && outcome != Committed && outcome != Unknown:
			c.add(Ghost, "%s is there, although it was %s", op, outcome)
		}
	}
	for _, op := range slices.Sorted(maps.Keys(times)) {
		if _, known := outcomes[op]; !known {
			c.add(Ghost, "%s is there, and no worker was told to write it", op)
		}
	}
}

func (c *checker) resource(resource string, rows []Row, balance int64) {
	byCommit := slices.SortedFunc(slices.Values(rows), func(a, b Row) int {
		return cmp.Or(a.Committed.Compare(b.Committed), cmp.Compare(a.Position, b.Position))
	})
	chain := c.chain(byCommit)
	c.tokens("commit timestamps", byCommit)
	if chain != nil {
		c.tokens("chain", chain)
		for i, r := range chain[min(1, len(chain)):] {
			if r.Committed.Before(chain[i].Committed) {
				c.add(CommitOrder, "%s was computed from %s and committed before it", r.Op, chain[i].Op)
			}
		}
	}
	var sum int64
	for _, r := range rows {
		sum += r.Amount
	}
	if sum != balance {
		c.add(Balance, "%q is at %d, and the %d appends add up to %d", resource, balance, len(rows), sum)
	}
}

// chain follows the rows from the first one; nil if they are no single chain.
func (c *checker) chain(rows []Row) []Row {
	next := make(map[string][]Row)
	for _, r := range rows {
		next[r.Previous] = append(next[r.Previous], r)
	}
	forked := false
	for _, previous := range slices.Sorted(maps.Keys(next)) {
		for _, r := range next[previous][1:] {
			forked = true
			first := next[previous][0]
			c.add(LostUpdate, "%s of %s (token %d) and %s of %s (token %d) were both computed from %q",
				first.Op, first.Holder, first.Token, r.Op, r.Holder, r.Token, previous)
		}
	}
	if forked {
		return nil
	}
	var last Row
	chain := make([]Row, 0, len(rows))
	for len(next[last.Op]) == 1 && len(chain) < len(rows) {
		r := next[last.Op][0]
		if r.Position != last.Position+1 || r.Before != last.Balance() {
			c.add(BrokenChain, "%s read position %d and balance %d, %q has %d and %d", r.Op, r.Position-1, r.Before, last.Op, last.Position, last.Balance())
		}
		chain = append(chain, r)
		last = r
	}
	if len(chain) < len(rows) {
		c.add(BrokenChain, "of %d appends of %q only %d lead back to the first", len(rows), rows[0].Resource, len(chain))
		return nil
	}
	return chain
}

func (c *checker) tokens(order string, rows []Row) {
	for i, r := range rows[min(1, len(rows)):] {
		switch before := rows[i]; {
		case r.Token < before.Token:
			c.add(TokenOrder, "%s has token %d and comes after %s with token %d, by %s", r.Op, r.Token, before.Op, before.Token, order)
		case r.Token == before.Token && r.Nonce != before.Nonce:
			c.add(SharedToken, "%s and %s were written under token %d by two acquisitions", before.Op, r.Op, r.Token)
		}
	}
}
