package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	settleEvery = 250 * time.Millisecond
	maxDebts    = 4096 // of one node; beyond, locks end with their TTL
)

// debts are what a node did not hear that it must hear: a lock that is given up, and
// that would keep everybody out for its TTL if enough nodes came back with it.
type debts struct {
	mu       sync.Mutex
	owed     []debt
	settling bool
}

type debt struct {
	script *redis.Script
	keys   []string
	args   []any
	until  time.Time // by then the lock has ended by itself
}

// owe remembers d. As long as there are debts one goroutine tries to settle them.
func (n *node) owe(d debt) {
	n.debts.mu.Lock()
	defer n.debts.mu.Unlock()
	if len(n.debts.owed) >= maxDebts {
		return
	}
	n.debts.owed = append(n.debts.owed, d)
	if !n.debts.settling {
		n.debts.settling = true
		go n.settle()
	}
}

func (n *node) settle() {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for range tick.C {
		for {
			d, ok := n.nextDebt()
			if !ok {
				return
			}
			if time.Now().Before(d.until) && n.pay(d) != nil {
				break // as good as all of the others
			}
			n.debts.mu.Lock()
			n.debts.owed = n.debts.owed[1:]
			n.debts.mu.Unlock()
		}
	}
}

// nextDebt returns the oldest debt; ok is false, and the settling over, if there is
// none.
func (n *node) nextDebt() (d debt, ok bool) {
	n.debts.mu.Lock()
	defer n.debts.mu.Unlock()
	if len(n.debts.owed) == 0 {
		n.debts.settling, n.debts.owed = false, nil
		return debt{}, false
	}
	return n.debts.owed[0], true
}

func (n *node) pay(d debt) error {
	ctx, cancel := context.WithTimeout(context.Background(), defaultNodeTimeout)
	defer cancel()
	err := d.script.Run(ctx, n.rdb, d.keys, d.args...).Err()
	if errors.Is(err, redis.ErrClosed) { // by its owner, who wants no more of it
		return nil
	}
	return err
}
