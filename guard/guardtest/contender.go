package guardtest

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// The histories are bounded: enough for hundreds of refusals, a few seconds on a
// database.
const (
	historyWorkers = 8
	historyRounds  = 25
	historyPlays   = 3
	acquireTries   = 20
)

// seedVariable repeats the schedule of a history that failed.
const seedVariable = "GUARDTEST_SEED"

func newSeed() uint64 {
	if seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64); err == nil {
		return seed
	}
	return rand.Uint64()
}

// A forgetfulSequencer is what is left of a token counter after failovers: mostly
// it grows, now and then it hands out a token twice or goes back.
type forgetfulSequencer struct {
	mu   sync.Mutex
	rng  *rand.Rand
	last guard.Token
}

// next returns a token that is greater than after if after is not 0.
func (q *forgetfulSequencer) next(after guard.Token) guard.Token {
	q.mu.Lock()
	defer q.mu.Unlock()
	if after > 0 {
		q.last = max(q.last, after) + 1
		return q.last
	}
	switch q.rng.IntN(10) {
	case 0, 1, 2: // handed out twice
		q.last = max(q.last, 1)
	case 3: // regressed
		q.last = max(q.last-guard.Token(q.rng.IntN(4)), 1)
	default:
		q.last++
	}
	return q.last
}

// A tally counts what happened in a history. A run without refusals has proved
// nothing.
type tally struct {
	mu                      sync.Mutex
	done, refused           [2]int // transactions, by access
	raises, conflicts, lost int    // raises refused, those of them as conflicts, outcomes unknown
}

func (t *tally) add(count *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*count++
}

func (t *tally) meaningful() error {
	if t.done[writing] == 0 || t.refused[writing] == 0 || t.raises == 0 || t.conflicts == 0 {
		return fmt.Errorf("the history proves nothing: %d writes done, %d refused, %d raises refused, %d of them as conflicts; want some of each",
			t.done[writing], t.refused[writing], t.raises, t.conflicts)
	}
	return nil
}

// A contender is one worker of a history. It takes leases as it likes, as if every
// other lease had just expired.
type contender struct {
	*scene
	*tally
	name string
	rng  *rand.Rand
	gate *turnstile
}

// acquire takes a token for resource and raises it, with the usual repair when
// the store is ahead of the sequencer. ok is false if others were faster.
func (c *contender) acquire(ctx context.Context, resource string, q *forgetfulSequencer) (f guard.Fence, ok bool, err error) {
	f = guard.Fence{Resource: resource, Token: q.next(0), Nonce: crand.Text(), Holder: c.name}
	for range acquireTries {
		c.pause() // S7: a late raise
		err := c.Raise(ctx, f)
		if err == nil {
			return f, true, nil
		}
		if errors.Is(err, guard.ErrBlocked) {
			c.yield() // the transaction that is in the way ends by itself
			continue
		}
		stale, ok := errors.AsType[*guard.StaleError](err)
		if !ok {
			return f, false, fmt.Errorf("raise %v: got error: %w, want none, a *guard.StaleError or %w", f, err, guard.ErrBlocked)
		}
		c.add(&c.raises)
		if errors.Is(err, guard.ErrConflict) {
			c.add(&c.conflicts)
		}
		f.Token, f.Nonce = q.next(stale.Current.Token), crand.Text()
	}
	return f, false, nil
}

// repeatRaise is what happens when the reply to a raise was lost (S22): late, and
// sometimes when it no longer holds.
func (c *contender) repeatRaise(ctx context.Context, f guard.Fence) error {
	err := c.Raise(ctx, f)
	if err == nil || errors.Is(err, guard.ErrStale) || errors.Is(err, guard.ErrBlocked) {
		return nil
	}
	return fmt.Errorf("raise %v again: got error: %w", f, err)
}

// pause lets others overtake, outside of a transaction.
func (c *contender) pause() {
	if c.rng.IntN(2) == 0 {
		c.gate.pause(1 + c.rng.IntN(8))
	}
}

// rest keeps a worker away between two rounds. If all came at once, each would be
// superseded before it has written, and the history would be of refusals only.
func (c *contender) rest() { c.gate.pause(c.rng.IntN(4 * historyWorkers)) }

// yield lets others run, inside of a transaction. What they do there cannot be
// waited for: if the guard is right, they wait for the transaction.
func (c *contender) yield() {
	if c.rng.IntN(4) == 0 {
		<-time.After(time.Duration(c.rng.Int64N(int64(6 * time.Millisecond))))
		return
	}
	for range c.rng.IntN(30) {
		runtime.Gosched()
	}
}

// An access is what a transaction was for.
type access int

const (
	reading access = iota
	writing
)

func (a access) String() string { return [...]string{"read", "write"}[a] }

// An outcome is what a worker knows of a transaction afterwards.
type outcome int

const (
	done outcome = iota
	refused
	unknown
)

// judge sorts the error of a transaction. Any that a guard has no reason for in a
// history is returned.
func (c *contender) judge(what access, err error) (outcome, error) {
	c.gate.step()
	switch {
	case err == nil:
		c.add(&c.done[what])
		return done, nil
	case errors.Is(err, guard.ErrStale):
		c.add(&c.refused[what])
		return refused, nil
	case errors.Is(err, guard.ErrCommitUnknown):
		c.add(&c.lost)
		return unknown, nil
	}
	return unknown, fmt.Errorf("%s: got error: %w, want none, %w or %w", what, err, guard.ErrStale, guard.ErrCommitUnknown)
}

// contend runs work once per worker, concurrently, and returns what went wrong.
func (s *scene) contend(seed uint64, counts *tally, work func(c *contender) error) error {
	gate := newTurnstile(historyWorkers)
	errs := make([]error, historyWorkers)
	var group sync.WaitGroup
	for w := range historyWorkers {
		c := &contender{scene: s, tally: counts, name: fmt.Sprintf("w%d", w), rng: rand.New(rand.NewPCG(seed, uint64(w))), gate: gate}
		group.Go(func() {
			defer gate.leave()
			errs[w] = work(c)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// play runs a history, and again where by chance it was one that proves nothing.
func play(history func(seed uint64) (*tally, error)) (err error) {
	for range historyPlays {
		seed := newSeed()
		counts, failed := history(seed)
		if err = failed; err == nil {
			err = counts.meaningful()
		}
		if err == nil {
			return nil
		}
		err = fmt.Errorf("%w (run again with %s=%d)", err, seedVariable, seed)
		if failed != nil {
			return err
		}
	}
	return err
}
