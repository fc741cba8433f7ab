package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
)

// Further rules that a history can break.
const (
	LogOrder     history.Kind = "commit log"    // by the order in the server's log a token is smaller than one before it
	Account      history.Kind = "account"       // the accounts are not what the transfers make of them
	TornRead     history.Kind = "torn read"     // a committed transfer rests on two accounts that do not fit together
	Item         history.Kind = "item"          // inserts and deletes do not alternate, or did not leave what they should
	Linearizable history.Kind = "linearization" // no order of the calls explains all answers
	Half         history.Kind = "half"          // of a transaction on two resources one part is missing
	Worker       history.Kind = "worker"        // one has ended by itself, or got stuck
	Recovery     history.Kind = "recovery"      // after the last fault somebody could not work in time
)

// Rules are all kinds, in the order in which they are shown.
var Rules = []history.Kind{
	history.LostUpdate, history.LostAppend, history.Repeated, history.Ghost, history.BrokenChain, history.Balance,
	history.TokenOrder, history.SharedToken, history.CommitOrder, LogOrder, Account, TornRead, Item, Half, Linearizable, Worker, Recovery,
}

// An Effect is what an operation did besides its append.
type Effect struct {
	Resource, Op, What string
	Amount             int64
}

// State is what is in the database in the end.
type State struct {
	Rows     []history.Row
	Balances map[string]int64
	Log      []string // operations in the order of their commits
	Effects  []Effect
	Accounts map[string][2]int64 // left and right
	Items    map[string]int
	Pairs    map[string]string // operations on two resources: the names of both halves
}

// Of returns the part of the state that belongs to some resources.
func (s State) Of(resources []string) State {
	mine := func(resource string) bool { return slices.Contains(resources, resource) }
	part := State{Log: s.Log, Balances: maps.Clone(s.Balances), Accounts: s.Accounts, Items: s.Items, Pairs: s.Pairs}
	maps.DeleteFunc(part.Balances, func(resource string, _ int64) bool { return !mine(resource) })
	for _, r := range s.Rows {
		if mine(r.Resource) {
			part.Rows = append(part.Rows, r)
		}
	}
	for _, e := range s.Effects {
		if mine(e.Resource) {
			part.Effects = append(part.Effects, e)
		}
	}
	return part
}

// Told is what the workers of a variant have said.
type Told struct {
	Variant  workload.Variant
	Outcomes map[string]history.Outcome // by operation; Unknown where none was heard
	Reports  []workload.Report
}

// Check returns every violation, but for those that Register finds.
func Check(s State, t Told) []history.Violation {
	found := history.Check(s.Rows, s.Balances, t.Outcomes)
	if !t.Variant.HasTokens() {
		found = slices.DeleteFunc(found, func(v history.Violation) bool { return v.Kind == history.TokenOrder || v.Kind == history.SharedToken })
	}
	c := &checker{found: found}
	c.log(s, t)
	c.accounts(s, t)
	c.items(s)
	c.pairs(s)
	return c.found
}

type checker struct{ found []history.Violation }

func (c *checker) add(k history.Kind, format string, args ...any) {
	c.found = append(c.found, history.Violation{Kind: k, Text: fmt.Sprintf(format, args...)})
}

// log holds the tokens against the order of commits in the server's own log.
func (c *checker) log(s State, t Told) {
	byOp := make(map[string]history.Row)
	for _, r := range s.Rows {
		byOp[r.Op] = r
	}
	last := make(map[string]history.Row)
	seen := 0
	for _, op := range s.Log {
		r, mine := byOp[op]
		if !mine {
			continue
		}
		seen++
		before, ok := last[r.Resource]
		last[r.Resource] = r
		if !ok || !t.Variant.HasTokens() {
			continue
		}
		switch {
		case r.Token < before.Token:
			c.add(LogOrder, "%s with token %d was committed after %s with token %d", r.Op, r.Token, before.Op, before.Token)
		case r.Token == before.Token && r.Nonce != before.Nonce:
			c.add(LogOrder, "%s and %s were committed under token %d by two acquisitions", before.Op, r.Op, r.Token)
		}
	}
	if seen != len(s.Rows) {
		c.add(LogOrder, "%d of %d rows are in the log of commits", seen, len(s.Rows))
	}
}

func (c *checker) accounts(s State, t Told) {
	moved := make(map[string]int64)
	for _, e := range s.Effects {
		if e.What == string(workload.Transfer) {
			moved[e.Resource] += e.Amount
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(s.Balances)) {
		both := s.Accounts[resource]
		if want := [2]int64{workload.Total - moved[resource], moved[resource]}; both != want {
			c.add(Account, "%q has %d and %d, and the transfers add up to %d and %d", resource, both[0], both[1], want[0], want[1])
		}
	}
	there := make(map[string]bool)
	for _, r := range s.Rows {
		there[r.Op] = true
	}
	for _, r := range t.Reports {
		if r.Step == workload.Done && r.Torn != "" && there[r.Op] {
			c.add(TornRead, "%s was committed, and had read that %s", r.Op, r.Torn)
		}
	}
}

// items follows the inserts and deletes along the positions that their operations
// had read; where the chain forks that is caught elsewhere.
func (c *checker) items(s State) {
	position := make(map[string]int64)
	for _, r := range s.Rows {
		position[r.Op] = r.Position
	}
	toggles := make(map[string][]Effect)
	for _, e := range s.Effects {
		if e.What == "insert" || e.What == "delete" {
			toggles[e.Resource] = append(toggles[e.Resource], e)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(s.Balances)) {
		all := toggles[resource]
		slices.SortStableFunc(all, func(a, b Effect) int { return cmp.Compare(position[a.Op], position[b.Op]) })
		there := 0
		for _, e := range all {
			switch {
			case e.What == "insert" && there == 1:
				c.add(Item, "%s inserted what was there", e.Op)
			case e.What == "delete" && there == 0:
				c.add(Item, "%s deleted what was not there", e.Op)
			}
			there = 0
			if e.What == "insert" {
				there = 1
			}
		}
		if s.Items[resource] != there {
			c.add(Item, "%q has %d rows, and should have %d", resource, s.Items[resource], there)
		}
	}
}

// pairs looks for operations on two resources of which one half is there.
func (c *checker) pairs(s State) {
	there := make(map[string]bool)
	for _, r := range s.Rows {
		there[r.Op] = true
	}
	for _, op := range slices.Sorted(maps.Keys(s.Pairs)) {
		if there[op] != there[s.Pairs[op]] {
			c.add(Half, "of %s on two resources one half is there", op)
		}
	}
}

// SharedTokens returns how many tokens were handed out to more than one acquisition.
func SharedTokens(reports []workload.Report) (n int) {
	type key struct {
		resource string
		token    guard.Token
	}
	nonces := make(map[key]map[string]bool)
	for _, r := range reports {
		if r.Step != workload.Granted || r.Token == 0 {
			continue
		}
		k := key{r.Resource, r.Token}
		if nonces[k] == nil {
			nonces[k] = make(map[string]bool)
		}
		nonces[k][r.Nonce] = true
	}
	for _, by := range nonces {
		if len(by) > 1 {
			n++
		}
	}
	return n
}
