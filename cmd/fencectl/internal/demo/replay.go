package demo

import (
	"errors"
	"fmt"
)

// tooEarly: a worker lost its lease where the story needs it to have one. On a busy
// machine a second may pass between two of its steps.
type tooEarly struct{ worker, text string }

func (e *tooEarly) Error() string { return e.text }

// attempts at one act; each has twice the TTL of the one before.
const attempts = 4

// perform plays an act, again if it failed for want of time.
func (p *play) perform(act func()) {
	if p.err != nil {
		return
	}
	act()
	for range attempts - 1 {
		late, ok := errors.AsType[*tooEarly](p.err)
		if !ok {
			return
		}
		p.restart(late.worker)
		act()
	}
}

// restart dismisses the crew, whose leases then run out, for workers with more time.
func (p *play) restart(late string) {
	for _, m := range p.crew {
		m.kill()
	}
	for _, m := range p.crew {
		m.dismiss()
	}
	p.crew, p.err = nil, nil
	p.ttl *= 2
	p.say(Event{Actor: late, What: Restarted, Text: fmt.Sprintf("has lost its lease too early, on a busy machine: the act begins again, with leases of %v", p.ttl)})
}

// needsLease reports whether a worker that has lost its lease cannot do this in the
// story. It writes without one on purpose, and learns of the loss by a release.
func (a action) needsLease() bool { return a == doAcquire || a == doRead || a == doCheck }
