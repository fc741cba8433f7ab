package guardtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/go-fencing/fencing/guard"
)

// historyOfAppends lets workers append to one list, each from what it has read in
// an earlier transaction, so that every write which a stale holder gets through
// loses another one.
func historyOfAppends(ctx context.Context, store Store) error {
	return play(func(seed uint64) (*tally, error) {
		s := newScene(store)
		h := appends{scene: s, seq: forgetfulSequencer{rng: rand.New(rand.NewPCG(seed, 1000))}, entries: make(map[string]entry)}
		h.resource, h.list = s.fence("", 0).Resource, s.key("list")
		if err := s.contend(seed, &h.tally, func(c *contender) error { return h.work(ctx, c) }); err != nil {
			return nil, err
		}
		list, err := h.final(ctx)
		if err == nil {
			err = h.verify(list)
		}
		return &h.tally, err
	})
}

type appends struct {
	*scene
	tally
	resource, list string
	seq            forgetfulSequencer

	entriesMu sync.Mutex
	entries   map[string]entry
}

// An entry is one append as its worker knows it.
type entry struct {
	fence   guard.Fence
	outcome outcome
}

func (h *appends) work(ctx context.Context, c *contender) error {
	var lease guard.Fence
	held := false
	for seq := range historyRounds {
		c.rest()
		if !held || c.rng.IntN(3) == 0 {
			var err error
			if lease, held, err = c.acquire(ctx, h.resource, &h.seq); err != nil {
				return err
			}
			if !held {
				continue
			}
		}
		result, err := h.append(ctx, c, lease, fmt.Sprintf("%d:%s:%d", lease.Token, c.name, seq))
		if err != nil {
			return err
		}
		held = result == done
	}
	return nil
}

// append reads the list, pauses, and writes it with one more entry.
func (h *appends) append(ctx context.Context, c *contender, lease guard.Fence, mark string) (outcome, error) {
	list, err := c.get(ctx, h.list, lease)
	if result, err := c.judge(reading, err); result != done || err != nil {
		return result, err
	}
	c.pause()
	if c.rng.IntN(4) == 0 {
		if err := c.repeatRaise(ctx, lease); err != nil {
			return refused, err
		}
	}
	err = c.Update(guard.NewContext(ctx, lease), func(ctx context.Context, tx Tx) error {
		c.yield()
		if err := tx.Put(ctx, h.list, list+mark+"\n"); err != nil {
			return err
		}
		c.yield()
		return nil
	})
	result, err := c.judge(writing, err)
	h.entriesMu.Lock()
	defer h.entriesMu.Unlock()
	h.entries[mark] = entry{fence: lease, outcome: result}
	return result, err
}

// final reads the list under a fence of its own, after the last worker.
func (h *appends) final(ctx context.Context) (list string, err error) {
	return list, h.contendAlone(func(c *contender) error {
		lease, held, err := c.acquire(ctx, h.resource, &h.seq)
		if err != nil || !held {
			return fmt.Errorf("the last raise: held %t: %w", held, orNil(err))
		}
		list, err = c.get(ctx, h.list, lease)
		return err
	})
}

// contendAlone runs work as the only worker.
func (s *scene) contendAlone(work func(c *contender) error) error {
	return work(&contender{scene: s, tally: new(tally), name: "last", rng: rand.New(rand.NewPCG(0, 0)), gate: newTurnstile(1)})
}

// verify compares the list with what the workers know: every acknowledged append
// is in it once, no refused one is, and it is in the order of the fences.
func (h *appends) verify(list string) error {
	found := make(map[string]bool)
	var last guard.Fence
	for i, mark := range strings.Fields(list) {
		e, known := h.entries[mark]
		switch {
		case !known:
			return fmt.Errorf("entry %d of the list is %q, which nobody wrote", i, mark)
		case found[mark]:
			return fmt.Errorf("entry %d of the list, %q, is there twice", i, mark)
		case e.outcome == refused:
			return fmt.Errorf("entry %d of the list, %q, was refused", i, mark)
		case e.fence.Token < last.Token:
			return fmt.Errorf("entry %d of the list, %q, comes after one of token %d", i, mark, last.Token)
		case e.fence.Token == last.Token && e.fence != last:
			return fmt.Errorf("entry %d of the list, %q, is of %s, and the one before it of %s: both got in with one token", i, mark, e.fence.Holder, last.Holder)
		}
		found[mark] = true
		last = e.fence
	}
	for mark, e := range h.entries {
		if e.outcome == done && !found[mark] {
			return fmt.Errorf("the append %q was acknowledged and is lost; the list has %d entries", mark, len(found))
		}
	}
	return nil
}
