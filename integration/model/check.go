package model

import (
	"errors"
	"fmt"
)

var (
	// ErrLostUpdate: a commit has overwritten another.
	ErrLostUpdate = errors.New("lost update")

	// ErrDisorder: something has committed under an earlier raise after something
	// had committed under a later one.
	ErrDisorder = errors.New("commits are not in the order of their raises")

	// ErrStuck: a client that comes new does not get through.
	ErrStuck = errors.New("a new client does not get through")
)

// Run explores the model.
func (m Model) Run() Result[State] {
	free := make(map[State]bool)
	return Explore(State{}, m.steps, m.canonical, func(s State) error { return m.check(s, free) })
}

// check refuses a state that must not be. In free it remembers from which states of the
// stores a new client gets through.
func (m Model) check(s State, free map[State]bool) error {
	switch {
	case s.row.value != s.commits:
		return fmt.Errorf("%w: %d commits, and the counter is at %d", ErrLostUpdate, s.commits, s.row.value)
	case s.disorder:
		return ErrDisorder
	case m.Raise == nil:
		return nil // without a raise there is no answer to repair from
	}
	quiet := s.quiet()
	through, known := free[quiet]
	if !known {
		through = m.getsThrough(quiet)
		free[quiet] = through
	}
	if !through {
		return fmt.Errorf("%w: the counter of tokens is at %d, the fence in the store at %d", ErrStuck, s.counter, s.fence.token)
	}
	return nil
}

// quiet is the state when the lease has ended, and Postgres has ended the transactions
// that were open. Both are steps that may follow.
func (s State) quiet() State {
	return State{counter: s.counter, fence: fence{token: s.fence.token}}
}

// longestPath of a client: acquire, be refused, acquire, raise, read, enter, commit.
const longestPath = 8

// getsThrough reports whether a new client reaches its commit if nothing goes wrong,
// with one repair at most.
func (m Model) getsThrough(s State) bool {
	m.Acquisitions = 1
	for range longestPath {
		next := s
		first := true
		m.progress(s, newcomer, func(_ Step, to State) {
			if first {
				next, first = to, false
			}
		})
		s = next
		if s.clients[newcomer].phase == done {
			return true
		}
	}
	return false
}
