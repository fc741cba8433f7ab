package guardtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"

	"github.com/go-fencing/fencing/guard"
)

// historyOfTransfers moves amounts between two accounts, each with a fence of its
// own, from balances read in an earlier transaction. No money comes or goes, and
// the balances follow from the transfers that were acknowledged.
func historyOfTransfers(ctx context.Context, store Store) error {
	return play(func(seed uint64) (*tally, error) {
		h := transfers{scene: newScene(store)}
		for i, name := range []string{"left", "right"} {
			h.accounts[i] = account{
				resource: h.of(name, "", 0).Resource, key: h.key(name),
				seq: forgetfulSequencer{rng: rand.New(rand.NewPCG(seed, uint64(1000+i)))},
			}
		}
		err := h.contend(seed, &h.tally, func(c *contender) error { return h.work(ctx, c) })
		if err == nil {
			err = h.verify(ctx)
		}
		return &h.tally, err
	})
}

type transfers struct {
	*scene
	tally
	accounts [2]account
	moved    atomic.Int64 // from left to right, acknowledged
}

type account struct {
	resource, key string
	seq           forgetfulSequencer
}

func (h *transfers) work(ctx context.Context, c *contender) error {
	var leases [2]guard.Fence
	held := false
	for range historyRounds {
		c.rest()
		if !held || c.rng.IntN(2) == 0 {
			first := c.rng.IntN(2)
			expired := []int{first, 1 - first} // raised in either order
			if held && c.rng.IntN(2) == 0 {
				expired = expired[:1]
			}
			var err error
			if held, err = h.acquire(ctx, c, &leases, expired); err != nil {
				return err
			}
			if !held {
				continue
			}
		}
		result, err := h.transfer(ctx, c, leases[:])
		if err != nil {
			return err
		}
		held = result == done
	}
	return nil
}

// acquire replaces the leases of some accounts; false if others were faster.
func (h *transfers) acquire(ctx context.Context, c *contender, leases *[2]guard.Fence, accounts []int) (held bool, err error) {
	for _, i := range accounts {
		a := &h.accounts[i]
		if leases[i], held, err = c.acquire(ctx, a.resource, &a.seq); err != nil || !held {
			return false, err
		}
	}
	return true, nil
}

func (h *transfers) transfer(ctx context.Context, c *contender, leases []guard.Fence) (outcome, error) {
	left, right, err := h.balances(ctx, leases)
	if result, err := c.judge(reading, err); result != done || err != nil {
		return result, err
	}
	if left+right != 0 {
		return refused, fmt.Errorf("%s read the balances %d and %d, which must add up to 0", c.name, left, right)
	}
	c.pause()
	amount := 1 + c.rng.Int64N(100)
	err = c.Update(guard.NewContext(ctx, leases...), func(ctx context.Context, tx Tx) error {
		c.yield()
		if err := tx.Put(ctx, h.accounts[0].key, strconv.FormatInt(left-amount, 10)); err != nil {
			return err
		}
		c.yield()
		return tx.Put(ctx, h.accounts[1].key, strconv.FormatInt(right+amount, 10))
	})
	result, err := c.judge(writing, err)
	if result == done {
		h.moved.Add(amount)
	}
	return result, err
}

// balances reads both accounts in one transaction; an account that nobody has
// written has 0.
func (h *transfers) balances(ctx context.Context, leases []guard.Fence) (left, right int64, err error) {
	err = h.Update(guard.NewContext(ctx, leases...), func(ctx context.Context, tx Tx) error {
		for i, balance := range []*int64{&left, &right} {
			value, ok, err := tx.Get(ctx, h.accounts[i].key)
			if err != nil {
				return err
			}
			*balance = 0
			if ok {
				if *balance, err = strconv.ParseInt(value, 10, 64); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return left, right, err
}

func (h *transfers) verify(ctx context.Context) error {
	return h.contendAlone(func(c *contender) error {
		var leases [2]guard.Fence
		if held, err := h.acquire(ctx, c, &leases, []int{0, 1}); err != nil || !held {
			return fmt.Errorf("the last raises: held %t: %w", held, orNil(err))
		}
		left, right, err := h.balances(ctx, leases[:])
		if err != nil {
			return fmt.Errorf("the last read: %w", err)
		}
		moved := h.moved.Load()
		if left+right != 0 || h.lost == 0 && right != moved {
			return fmt.Errorf("the balances are %d and %d after %d was moved in %d transfers; acknowledged transfers are lost or refused ones are there",
				left, right, moved, h.done[writing])
		}
		return nil
	})
}
