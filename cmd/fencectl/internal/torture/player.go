package torture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/oracle"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
)

// A player drives two workers of a variant, or a single one, through its schedule.
type player struct {
	*run
	variant   workload.Variant
	name      string
	resources []string
	journal   *journal
	schedule  *schedule

	mu    sync.Mutex
	crew  []*member
	hired int
}

// play plays rounds until time is up, and ends the last one.
func (p *player) play(ctx context.Context, timeUp <-chan struct{}) error {
	for {
		select {
		case <-timeUp:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		err := p.perform(ctx, p.schedule.next())
		if isViolation(err) && ctx.Err() == nil {
			p.violated(p.variant, oracle.Worker, err)
			err = errors.Join(p.replace(0), p.replace(len(p.name)-1))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.variant, err)
		}
	}
}

func (p *player) perform(ctx context.Context, r round) error {
	switch {
	case r.trap != nil && len(p.crew) == 2:
		return p.set(ctx, r)
	case len(p.crew) == 1:
		return p.errand(ctx, 0, r.a)
	}
	var both sync.WaitGroup
	var errs [2]error
	both.Go(func() { errs[0] = p.errand(ctx, 0, r.a) })
	both.Go(func() { errs[1] = p.errand(ctx, 1, r.b) })
	both.Wait()
	return errors.Join(errs[:]...)
}

// set sets a trap. A worker that fails on the way is in none.
func (p *player) set(ctx context.Context, r round) error {
	a, b := p.member(0), p.member(1)
	orderA := workload.Order{Kind: r.a.kind, Resource: p.resources[0], Amount: r.a.amount, Repeat: r.trap.repeat}
	orderB := workload.Order{Kind: r.b.kind, Resource: p.resources[0], Amount: r.b.amount}
	if p.variant.IsGuarded() {
		orderA.Way, orderB.Way = inTransaction(r.a.way), inTransaction(r.b.way)
	}
	if !p.may(Pause) {
		return errors.Join(p.whole(ctx, a, orderA), p.whole(ctx, b, orderB))
	}
	orderA.Hold = []workload.Step{r.trap.at}
	if r.trap.reads {
		orderB.Hold = []workload.Step{workload.Read}
	}
	if _, err := a.order(orderA); err != nil {
		return err
	}
	there, err := a.await(ctx, stuck, r.trap.at, workload.Released)
	if err != nil || there.Step != r.trap.at {
		return err
	}
	from := p.now()
	if err := a.freeze(); err != nil {
		return err
	}
	wake := sync.OnceValue(func() error {
		p.note(Frozen, p.variant, a.name, from, r.trap.name)
		return errors.Join(a.wake(), a.goOn())
	})
	defer func() { _ = wake() }() // where it fails, that has been said
	if r.trap.forget && p.may(Forget) {
		// A Redis that is down cannot forget.
		_ = p.stage.redis.forget(ctx, p.prefix(), p.resources[0], a.granted().Token)
	}
	if _, err := b.order(orderB); err != nil {
		return err
	}
	midway := workload.Done
	if r.trap.reads {
		midway = workload.Read
	}
	if _, err := b.await(ctx, r.gap, midway, workload.Done); err != nil && !errors.Is(err, errLate) {
		return err
	}
	if err := wake(); err != nil {
		return err
	}
	if r.trap.reads {
		// A may be waiting for the lock that B has.
		if _, err := a.await(ctx, 2*time.Second, workload.Done); err != nil && !errors.Is(err, errLate) {
			return err
		}
		if err := b.goOn(); err != nil {
			return err
		}
	}
	return errors.Join(a.finish(ctx), b.finish(ctx))
}

// inTransaction is the way, or another one if it has no steps to be frozen at.
func inTransaction(way workload.Way) workload.Way {
	if way == workload.Single {
		return workload.Plain
	}
	return way
}

// whole lets a worker do one operation in peace.
func (p *player) whole(ctx context.Context, m *member, o workload.Order) error {
	if _, err := m.order(o); err != nil {
		return err
	}
	return m.finish(ctx)
}

// errand lets a worker do one operation, with its fault.
func (p *player) errand(ctx context.Context, i int, e errand) error {
	m := p.member(i)
	o := workload.Order{Kind: e.kind, Resource: p.resources[1+e.resource], Amount: e.amount, Obedient: e.obedient}
	if p.variant.IsGuarded() {
		o.Way = e.way
		if e.also {
			o.Also = p.resources[resourcesEach-1-e.resource]
		}
	}
	if !p.may(e.fault.needs()) {
		e.fault = nothing
	}
	stopAt := map[fault]workload.Step{pauseAt: e.at, killAt: e.at, loseCommit: workload.Written}[e.fault]
	if stopAt != "" {
		o.Obedient = false
		o.Hold = []workload.Step{stopAt}
	}
	if _, err := m.order(o); err != nil {
		return err
	}
	if stopAt != "" {
		there, err := m.await(ctx, stuck, stopAt, workload.Released)
		if err != nil || there.Step != stopAt {
			return err
		}
	} else if e.fault != nothing {
		if !sleep(ctx, e.after) {
			return context.Cause(ctx)
		}
	}
	if err := p.befall(ctx, i, m, e); err != nil || e.fault.needs() == Kill {
		return err
	}
	return m.finish(ctx)
}

// befall makes the fault happen to a worker that is on its errand.
func (p *player) befall(ctx context.Context, i int, m *member, e errand) error {
	from := p.now()
	switch e.fault {
	case nothing:
		return nil
	case pauseAt, pauseAnyway:
		if err := m.freeze(); err != nil {
			return err
		}
		sleep(ctx, e.pause)
		if err := m.wake(); err != nil {
			return err
		}
		p.note(Frozen, p.variant, m.name, from, string(e.fault))
		if e.fault == pauseAt {
			return m.goOn()
		}
	case killAt, killAnyway:
		p.note(Killed, p.variant, m.name, from, string(e.fault))
		return p.replace(i)
	case loseCommit:
		before := m.postgres.Lost()
		m.postgres.LoseReply("commit")
		if err := m.goOn(); err != nil {
			return err
		}
		if err := m.finish(ctx); err != nil {
			return err
		}
		if m.postgres.Lost() > before {
			p.note(Lost, p.variant, m.name, from, string(e.fault))
		}
	case cutRedis, loseRedis, cutPostgres:
		what := map[fault]func(){cutRedis: m.redis.Cut, loseRedis: m.redis.Silence, cutPostgres: m.postgres.Cut}
		what[e.fault]()
		sleep(ctx, e.pause)
		m.redis.Heal()
		m.postgres.Heal()
		p.note(Cutoff, p.variant, m.name, from, string(e.fault))
	}
	return nil
}

func (p *player) member(i int) *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crew[i]
}

// hireNext starts a worker in the place of the one before it.
func (p *player) hireNext(i int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hired++
	c := p.config(p.variant, fmt.Sprintf("%c.%d", p.name[i], p.hired))
	m, err := hire(p.options.Worker, c, p.journal, p.stage.redis.target(), p.stage.addr)
	if err != nil {
		return err
	}
	if i == len(p.crew) {
		p.crew = append(p.crew, nil)
	}
	p.crew[i] = m
	return nil
}

func (p *player) replace(i int) error {
	if err := p.member(i).kill(); err != nil {
		return err
	}
	return p.hireNext(i)
}

// each calls f for every worker that the player has now.
func (p *player) each(f func(i int, m *member)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, m := range p.crew {
		f(i, m)
	}
}

// recover lets each worker work once on each resource, after all faults. It tries
// again as long as the bound allows: locks of the dead have yet to expire.
func (p *player) recover(ctx context.Context, bound time.Duration) error {
	late := time.Now().Add(bound)
	for i := range p.crew {
		m := p.member(i)
		for _, resource := range p.resources {
			for {
				o := workload.Order{Kind: workload.Append, Resource: resource, Amount: 1, Obedient: true}
				op, err := m.order(o)
				if err != nil {
					return err
				}
				done, err := m.await(ctx, stuck, workload.Done)
				if err != nil {
					return err
				}
				if err := m.finish(ctx); err != nil {
					return err
				}
				if done.Error == "" {
					break
				}
				if time.Now().After(late) {
					return fmt.Errorf("%w: %s of %s, %s after the last fault: %s", errNoRecovery, op, resource, bound, done.Error)
				}
			}
		}
	}
	return nil
}

var errNoRecovery = errors.New("no recovery")

// sleep returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
