package redlock

import (
	"context"
	"errors"
	"slices"
	"strings"
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

func (d debt) equal(o debt) bool {
	return d.script == o.script && slices.Equal(d.keys, o.keys) && slices.Equal(d.args, o.args)
}

// owe remembers d, once: who gets no answer asks again. As long as there are debts one
// goroutine tries to settle them.
func (n *node) owe(d debt) {
	n.debts.mu.Lock()
	defer n.debts.mu.Unlock()
	if len(n.debts.owed) >= maxDebts || slices.ContainsFunc(n.debts.owed, d.equal) {
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
			if time.Now().Before(d.until) && unheard(n.pay(d)) {
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
	return d.script.Run(ctx, n.rdb, d.keys, d.args...).Err()
}

// passing are the errors of a node that does nothing at all, for now: all of its debts
// get the same one. Any other is about the keys of one debt, and would be the same the
// next time.
var passing = []string{"LOADING", "BUSY", "READONLY", "MASTERDOWN", "MISCONF", "NOREPLICAS", "NOAUTH", "WRONGPASS", "NOPERM"}

// unheard reports whether the node that a call ended with err at is to be told again.
func unheard(err error) bool {
	if err == nil || errors.Is(err, redis.ErrClosed) { // by its owner, who wants no more of it
		return false
	}
	answer, answered := errors.AsType[redis.Error](err)
	// Before Redis 7 the error of a command in a script does not begin with its code.
	return !answered || slices.ContainsFunc(passing, func(code string) bool { return strings.Contains(answer.Error(), code) })
}
