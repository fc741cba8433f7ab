package guardtest_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/guardtest"
)

// A lab is a second implementation of a store, small enough that each of its
// parts can be broken or exchanged. Without a flaw it is a right one.
type lab struct {
	flaw
	mu        sync.Mutex
	changed   chan struct{} // closed at every change of a gate
	resources map[string]*gate
	data      map[string]string
	busy      int // transactions that run, for serial
}

// A gate has the fence of one resource.
type gate struct {
	record         guard.Record
	writes, raises int
}

// A flaw says what is different in a store.
type flaw struct {
	raise func(r guard.Record, f guard.Fence) (guard.Record, error) // decides what stands after a raise
	enter func(g *gate, f guard.Fence) error
	name  func(resource string) string
	order func(fences []guard.Fence)

	// Other ways to be right.
	optimistic bool // a raise does not wait; a transaction checks again at its commit
	serial     bool // one transaction at a time
	impatient  bool // a raise does not wait, it is refused

	// Ways to be wrong.
	raisesOverWrites  bool // a raise does not wait
	doesNotHold       bool // the gate is left between the check and the write
	stampsAtWrite     bool // the row rule: what counts is the last write, not the last raise
	waitsForEver      bool // a raise ignores its context
	staysInTheQueue   bool // a raise that gave up still keeps others out
	ignoresDead       bool // a dead context is not noticed
	takesInvalid      bool
	needsNoFence      bool
	runsFirst         bool // the check comes after fn
	writesPartially   bool // the first write is done although a fence was refused
	entersFirstOnly   bool // of several fences
	commitsFailed     bool // an error of fn does not matter
	keepsPanicked     bool // a panic of fn leaves the transaction open
	deleteDropsFences bool // the fence goes with the data
}

// hangs reports that the flaw shows in something that never ends.
func (f flaw) hangs() bool {
	return f.waitsForEver || f.staysInTheQueue || f.keepsPanicked || f.order != nil
}

func newLab(f flaw) *lab {
	if f.raise == nil {
		f.raise = func(r guard.Record, f guard.Fence) (guard.Record, error) {
			if err := r.Raise(f); err != nil {
				return r, err
			}
			return guard.Record{Fence: f}, nil
		}
	}
	if f.stampsAtWrite {
		f.raise = func(r guard.Record, _ guard.Fence) (guard.Record, error) { return r, nil }
		f.enter = func(g *gate, f guard.Fence) error {
			if !guard.AdmitRow(g.record.Fence.Token, f.Token) {
				return &guard.StaleError{Held: f, Current: g.record.Fence}
			}
			return nil
		}
	}
	if f.enter == nil {
		f.enter = func(g *gate, f guard.Fence) error { return g.record.Enter(f) }
	}
	if f.name == nil {
		f.name = func(resource string) string { return resource }
	}
	return &lab{flaw: f, changed: make(chan struct{}), resources: make(map[string]*gate), data: make(map[string]string)}
}

func (l *lab) Raise(ctx context.Context, f guard.Fence) error {
	if err := f.Validate(); err != nil && !l.takesInvalid {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil && !l.ignoresDead {
		return err
	}
	g := l.gate(f.Resource)
	g.raises++
	gaveUp := false
	defer func() {
		if !gaveUp || !l.staysInTheQueue {
			g.raises--
		}
		l.signal()
	}()
	for !l.raisesOverWrites && !l.stampsAtWrite && (g.writes > 0 || l.serial && l.busy > 0) {
		if l.impatient {
			return fmt.Errorf("lab: raise: %w", guard.ErrBlocked)
		}
		if err := l.wait(ctx); err != nil && !l.waitsForEver {
			gaveUp = true
			return fmt.Errorf("lab: raise: %w: %w", guard.ErrBlocked, err)
		}
	}
	record, err := l.raise(g.record, f)
	g.record = record
	return err
}

func (l *lab) Update(ctx context.Context, fn func(ctx context.Context, tx guardtest.Tx) error) error {
	fences := slices.Clone(guard.Fences(ctx))
	if len(fences) == 0 && !l.needsNoFence {
		return fmt.Errorf("lab: %w", guard.ErrNoFence)
	}
	if l.order != nil {
		l.order(fences)
	}
	if l.entersFirstOnly && len(fences) > 0 {
		fences = fences[:1]
	}
	tx := &labTx{lab: l, changes: make(map[string]*string)}
	if l.runsFirst {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		fn = func(context.Context, guardtest.Tx) error { return nil }
	}
	exit, err := l.enterAll(ctx, fences)
	if err != nil {
		if l.writesPartially && fn(ctx, tx) == nil {
			tx.order = tx.order[:1]
			_ = l.commit(tx, nil)
		}
		return err
	}
	finished := false
	defer func() {
		if finished || !l.keepsPanicked {
			exit()
		}
	}()
	err = fn(ctx, tx)
	finished = true
	if err != nil && !l.commitsFailed {
		return err
	}
	if commitErr := l.commit(tx, fences); commitErr != nil {
		return commitErr
	}
	return err
}

func (l *lab) enterAll(ctx context.Context, fences []guard.Fence) (exit func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var entered []*gate
	leave := func() {
		for _, g := range entered {
			g.writes--
		}
		entered = nil
		l.signal()
	}
	if l.serial {
		for l.busy > 0 {
			if err := l.wait(ctx); err != nil {
				return nil, err
			}
		}
		l.busy++
		done := leave
		leave = func() { l.busy--; done() }
	}
	for _, f := range fences {
		g := l.gate(f.Resource)
		for g.raises > 0 && !l.serial {
			if err := l.wait(ctx); err != nil {
				leave()
				return nil, err
			}
		}
		if err := ctx.Err(); err != nil && !l.ignoresDead {
			leave()
			return nil, err
		}
		if err := l.enter(g, f); err != nil {
			leave()
			return nil, err
		}
		if !l.optimistic && !l.doesNotHold {
			g.writes++
			entered = append(entered, g)
		}
		if l.order != nil { // so that others come in between
			l.mu.Unlock()
			runtime.Gosched()
			l.mu.Lock()
		}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		leave()
	}, nil
}

// commit applies the changes, in a store that checks at the commit only if the
// fences still hold.
func (l *lab) commit(tx *labTx, fences []guard.Fence) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range fences {
		g := l.gate(f.Resource)
		if err := l.enter(g, f); err != nil && (l.optimistic || l.stampsAtWrite) {
			return err
		}
		if l.stampsAtWrite && len(tx.order) > 0 {
			g.record.Fence = f
		}
	}
	for _, key := range tx.order {
		if value := tx.changes[key]; value != nil {
			l.data[key] = *value
			continue
		}
		delete(l.data, key)
		if l.deleteDropsFences {
			for g := range maps.Values(l.resources) {
				g.record = guard.Record{}
			}
		}
	}
	return nil
}

func (l *lab) gate(resource string) *gate {
	resource = l.name(resource)
	g := l.resources[resource]
	if g == nil {
		g = new(gate)
		l.resources[resource] = g
	}
	return g
}

func (l *lab) wait(ctx context.Context) error {
	changed := l.changed
	l.mu.Unlock()
	defer l.mu.Lock()
	if l.waitsForEver {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lab) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

type labTx struct {
	lab     *lab
	changes map[string]*string
	order   []string
}

func (tx *labTx) Get(_ context.Context, key string) (value string, ok bool, err error) {
	if changed, ok := tx.changes[key]; ok {
		if changed == nil {
			return "", false, nil
		}
		return *changed, true, nil
	}
	tx.lab.mu.Lock()
	defer tx.lab.mu.Unlock()
	value, ok = tx.lab.data[key]
	return value, ok, nil
}

func (tx *labTx) Put(_ context.Context, key, value string) error {
	tx.changes[key] = &value
	tx.order = append(tx.order, key)
	return nil
}

func (tx *labTx) Delete(_ context.Context, key string) error {
	tx.changes[key] = nil
	tx.order = append(tx.order, key)
	return nil
}
