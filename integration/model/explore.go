package model

// A Step is one thing that happens.
type Step struct{ Who, What string }

// A Line is a step of a history and the state after it.
type Line[S any] struct {
	Step  Step
	State S
}

// A Result says what an exploration has found.
type Result[S any] struct {
	States int // distinct ones
	Steps  int // from one state to another
	Depth  int // steps to the state that is farthest away

	Violation error     // of the first state that the check refused; nil if there is none
	History   []Line[S] // the shortest one that leads there
}

// Explore visits every state that can be reached from initial, nearest first, until
// check refuses one. States with the same canonical one are visited once.
func Explore[S comparable](initial S, steps func(S, func(Step, S)), canonical func(S) S, check func(S) error) Result[S] {
	initial = canonical(initial)
	seen := map[S]bool{initial: true}
	states, parents := []S{initial}, []int32{-1}
	r := Result[S]{}
	level := 1 // where the states of the next depth begin
	for i := int32(0); int(i) < len(states); i++ {
		if int(i) == level {
			r.Depth++
			level = len(states)
		}
		if r.Violation = check(states[i]); r.Violation != nil {
			r.History = history(states, parents, i, steps, canonical)
			break
		}
		steps(states[i], func(_ Step, to S) {
			r.Steps++
			to = canonical(to)
			if !seen[to] {
				seen[to] = true
				states, parents = append(states, to), append(parents, i)
			}
		})
	}
	r.States = len(states)
	return r
}

// history takes the steps to a state once more. That is cheaper than to keep those to
// all states, and shows what the canonical ones no longer have.
func history[S comparable](states []S, parents []int32, end int32, steps func(S, func(Step, S)), canonical func(S) S) []Line[S] {
	if parents[end] < 0 {
		return []Line[S]{{Step{"", "the beginning"}, states[end]}}
	}
	lines := history(states, parents, parents[end], steps, canonical)
	var next *Line[S]
	steps(lines[len(lines)-1].State, func(s Step, to S) {
		if next == nil && canonical(to) == states[end] {
			next = &Line[S]{s, to}
		}
	})
	return append(lines, *next)
}
