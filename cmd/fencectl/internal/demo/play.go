package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/freeze"
	"github.com/go-fencing/fencing/guard"
)

// A play directs the workers. Its steps do nothing once one has failed, so that an
// act reads as a script; the failure is in err.
type play struct {
	ctx     context.Context // of one run of the demo, which is what a play is
	out     Reporter
	redis   *redisStage
	stage   stage
	command []string
	ttl     time.Duration
	beat    time.Duration // to read a line
	begun   time.Time

	crew    []*member
	current Result
	results []Result
	err     error
}

func (p *play) opening() Opening {
	o := Opening{Redis: p.redis.about, Store: p.stage.store(), Resource: resource, TTL: p.ttl.String(), Freezes: freeze.Possible}
	if o.Store == SQLite {
		o.SQLite = p.stage.about()
	} else {
		o.Postgres = p.stage.about()
	}
	return o
}

// name is what the story calls the store.
func (p *play) name() string { return p.stage.store().Title() }

// act begins an act with a full stock.
func (p *play) act(guarded bool, title, note string) {
	if p.err != nil {
		return
	}
	p.current = Result{Act: len(p.results) + 1, Guarded: guarded}
	if p.err = p.stage.setStock(p.ctx, opening); p.err == nil {
		p.err = p.out.Act(Act{Act: p.current.Act, Title: title, Note: note})
	}
	p.rest()
}

// end compares what was sold with what the table says.
func (p *play) end() {
	if p.err != nil {
		return
	}
	if p.current.Stock, p.err = p.stage.stock(p.ctx); p.err != nil {
		return
	}
	r := p.current.conclude()
	p.results = append(p.results, r)
	p.err = p.out.Result(r)
	p.rest()
	p.rest()
}

// rest gives the time to read.
func (p *play) rest() {
	if p.err != nil || p.beat == 0 {
		return
	}
	select {
	case <-time.After(p.beat):
	case <-p.ctx.Done():
		p.err = context.Cause(p.ctx)
	}
}

func (p *play) say(e Event) {
	if p.err != nil {
		return
	}
	e.Act, e.Seconds = p.current.Act, time.Since(p.begun).Seconds()
	p.err = p.out.Event(e)
	p.rest()
}

// worker returns the worker of a name, whose process it starts at first.
func (p *play) worker(name string) *member {
	for _, m := range p.crew {
		if m.name == name {
			return m
		}
	}
	if p.err != nil {
		return nil
	}
	s := setup{Name: name, Redis: p.redis.url, Prefix: p.redis.scheme.Prefix, TTL: p.ttl}
	p.stage.tell(&s)
	m, err := hire(p.command, s)
	if err != nil {
		p.err = err
		return nil
	}
	p.crew = append(p.crew, m)
	return m
}

// dismiss ends every worker: gently after the last act, else at once.
func (p *play) dismiss() {
	if p.err != nil || p.ctx.Err() != nil {
		for _, m := range p.crew {
			m.kill()
		}
	}
	for _, m := range p.crew {
		m.dismiss()
	}
}

// tell passes an order on. A reply with an error that the story has no place for
// ends the play.
func (p *play) tell(m *member, o order, expected func(*failure) bool) (r reply, ok bool) {
	if p.err != nil {
		return r, false
	}
	if r, p.err = m.tell(p.ctx, o); p.err != nil {
		return r, false
	}
	if r.Error == nil || expected != nil && expected(r.Error) {
		return r, true
	}
	cause := errors.New(r.Error.Text)
	if r.Error.Lost && o.Do.needsLease() {
		cause = &tooEarly{m.name, r.Error.Text}
	}
	p.err = fmt.Errorf("act %d: worker %s cannot %s: %w", p.current.Act, m.name, o.Do, cause)
	return r, false
}

// acquire lets a worker wait for the lock, and in a guarded act raise its fence.
func (p *play) acquire(m *member) {
	r, ok := p.tell(m, order{Do: doAcquire, Guarded: p.current.Guarded}, nil)
	if !ok {
		return
	}
	p.redis.know(r.Fence.Nonce)
	for _, e := range r.Events {
		switch e.Kind {
		case guard.EventWaited:
			p.say(Event{Actor: m.name, What: Waited, Text: fmt.Sprintf("waits %.2fs until the lease before has run out", e.Took.Seconds())})
		case guard.EventRefused:
			p.say(Event{Actor: m.name, What: Proposed, Token: e.Token, Text: "gets the lock, but " + p.name() + " refuses the token", Error: e.Error})
		case guard.EventRepaired:
			p.current.Repaired++
			p.say(Event{Actor: m.name, What: Repaired, Token: e.Token, Text: "takes Redis' counter past the fence in " + p.name()})
		}
	}
	text := "acquires the lock"
	if p.current.Guarded {
		text += " and raises its fence in " + p.name()
	}
	p.say(Event{Actor: m.name, What: Acquired, Token: r.Fence.Token, Text: text})
}

func (p *play) read(m *member) (stock int) {
	r, ok := p.tell(m, order{Do: doRead}, nil)
	if ok {
		p.say(Event{Actor: m.name, What: Read, Token: r.Fence.Token, Text: fmt.Sprintf("reads: stock is %d", r.Stock)})
	}
	return r.Stock
}

// check lets a worker look whether it still has its lease, as careful code does.
func (p *play) check(m *member) {
	if r, ok := p.tell(m, order{Do: doCheck}, nil); ok {
		p.say(Event{Actor: m.name, What: Checked, Token: r.Fence.Token, Text: fmt.Sprintf("checks its lease: good for another %.2fs", r.Left.Seconds())})
	}
}

func (p *play) freeze(m *member) {
	if p.err != nil {
		return
	}
	text := "is frozen (SIGSTOP) before it writes"
	if !freeze.Possible {
		text = "hangs before it writes"
	}
	if p.err = freeze.Stop(m.cmd.Process); p.err == nil {
		p.say(Event{Actor: m.name, What: Frozen, Text: text})
	}
}

func (p *play) wake(m *member) {
	if p.err != nil {
		return
	}
	text := "wakes up (SIGCONT) and goes on to write"
	if !freeze.Possible {
		text = "goes on to write"
	}
	if p.err = freeze.Wake(m.cmd.Process); p.err == nil {
		p.say(Event{Actor: m.name, What: Woken, Text: text})
	}
}

// sell writes the stock that a sale of n leaves of what was read.
func (p *play) sell(m *member, n, read int) {
	r, ok := p.tell(m, order{Do: doWrite, Stock: read - n}, func(f *failure) bool { return f.Stale })
	if !ok {
		return
	}
	text := fmt.Sprintf("sells %d: writes %d - %d = %d", n, read, n, read-n)
	if r.Error == nil {
		p.current.Sold += n
		p.say(Event{Actor: m.name, What: Wrote, Token: r.Fence.Token, Text: text})
		return
	}
	if p.stage.refused(r.Error) {
		p.current.Refused++
	}
	p.say(Event{
		Actor: m.name, What: Refused, Token: r.Fence.Token, Text: text + ": refused by " + p.name(),
		Error: r.Error.Text, Server: r.Error.Postgres, State: r.Error.SQLState,
	})
}

func (p *play) release(m *member) {
	r, ok := p.tell(m, order{Do: doRelease}, func(f *failure) bool { return f.Lost })
	switch {
	case !ok:
	case r.Error == nil:
		p.say(Event{Actor: m.name, What: Released, Token: r.Fence.Token, Text: "releases the lock"})
	default:
		p.say(Event{Actor: m.name, What: Lost, Token: r.Fence.Token, Text: "releases the lock and learns that it had none", Error: r.Error.Text})
	}
}

func (p *play) forget() {
	if p.err != nil {
		return
	}
	p.current.Forgot = true
	text := "FLUSHALL: lock and counter are gone"
	if !p.redis.own {
		text = "DEL of lock and counter, as by a FLUSHALL"
	}
	if p.err = p.redis.forget(p.ctx); p.err == nil {
		p.say(Event{Actor: "Redis", What: Forgot, Text: text})
	}
}
