package model

import (
	"math"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sequencer"
)

// Rules are what a protocol may do in another way.
type Rules struct {
	Name string
	Why  string // it looks good, or is done somewhere

	Raise func(store guard.Record, f guard.Fence) bool                  // nil: nothing is raised before the read
	Enter func(store guard.Record, row guard.Token, f guard.Fence) bool // whether a transaction may write
	Next  func(counter, after guard.Token) (guard.Token, error)         // the sequencer

	Stamps        bool // Enter looks at the row
	Unlocked      bool // a raise does not wait for the transactions that have entered
	RaisesAtWrite bool // the transaction that writes stamps the fence row
	ReleaseDrops  bool // release deletes the fence row
	Rereads       bool // before it writes a client asks Redis what its token is
	ReadsEarly    bool // before the raise
	Reuses        bool // after a commit without a reply the client reads and writes again under the same fence
}

// True returns the rules of this repository.
func True() Rules {
	return Rules{
		Name: "true rules",
		Raise: func(store guard.Record, f guard.Fence) bool {
			return store.Raise(f) == nil
		},
		Enter: func(store guard.Record, _ guard.Token, f guard.Fence) bool {
			return store.Enter(f) == nil
		},
		Next: func(counter, after guard.Token) (guard.Token, error) {
			return sequencer.Advance(counter, after, sequencer.DefaultMaxJump)
		},
	}
}

// Broken returns protocols that lose updates, or never come back.
func Broken() []Rules {
	broken := func(name, why string, change func(r *Rules)) Rules {
		r := True()
		r.Name, r.Why = name, why
		change(&r)
		return r
	}
	return []Rules{
		// S2, the read window.
		broken("no raise", "the store compares the token at each write, and hears of a holder by its first one", func(r *Rules) {
			r.Raise, r.RaisesAtWrite = nil, true
			r.Enter = func(store guard.Record, _ guard.Token, f guard.Fence) bool { return store.Raise(f) == nil }
		}),
		// S9 and S7: a token handed out twice, and a raise that comes late.
		broken("greater or equal at the raise", "a holder that repeats its raise has to be let in", func(r *Rules) {
			r.Raise = func(store guard.Record, f guard.Fence) bool { return f.Token >= store.Fence.Token }
		}),
		// S9 and S22.
		broken("equal token is mine", "tokens are unique, what would the nonce be for", func(r *Rules) {
			r.Raise = func(store guard.Record, f guard.Fence) bool { return f.Token >= store.Fence.Token }
			r.Enter = func(store guard.Record, _ guard.Token, f guard.Fence) bool {
				return f.Token > 0 && f.Token == store.Fence.Token
			}
		}),
		// S2: the version column says nothing until the newer holder has written.
		broken("row rule only", "a version column on the row, and no table of fences", func(r *Rules) {
			r.Raise, r.Stamps = nil, true
			r.Enter = func(_ guard.Record, row guard.Token, f guard.Fence) bool { return guard.AdmitRow(row, f.Token) }
		}),
		// S3.
		broken("check without a lock", "a plain SELECT of the fence at the start of the transaction", func(r *Rules) {
			r.Unlocked = true
		}),
		// S36, with a late raise in place of an insert.
		broken("release deletes the fence", "the table would grow for ever", func(r *Rules) {
			r.ReleaseDrops = true
		}),
		// S15.
		broken("re-read of the token", "the lock has a getToken that asks the server", func(r *Rules) {
			r.Rereads = true
		}),
		// S2 and S31.
		broken("read before the raise", "the fence is raised at the start of the transaction that writes", func(r *Rules) {
			r.ReadsEarly = true
		}),
		// S24: one fence does not tell two attempts of its holder apart; pgguard's Once does.
		broken("second attempt under the same fence", "no reply to the commit, and the lease is still held", func(r *Rules) {
			r.Reuses = true
		}),
		// S13 and S40. Nothing gets lost here, and nobody gets in.
		broken("no repair", "the counter knows best, and the store's token is not passed to it", func(r *Rules) {
			r.Next = func(counter, _ guard.Token) (guard.Token, error) {
				return sequencer.Advance(counter, 0, math.MaxInt64)
			}
		}),
	}
}
