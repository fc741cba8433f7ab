package guard

import "time"

// A Record is what a store keeps of a resource: its current fence and when that
// was raised. The zero Record means that there is no fence yet.
type Record struct {
	Fence Fence
	Since time.Time
}

// Raise decides whether f may become the current fence: there is none yet, or f
// has a greater token, or f is the current fence itself (a repeated call).
//
// Strictly greater: with >= a token that a forgetful sequencer hands out twice
// lets both holders in, and one of their updates is lost. For the same reason an
// equal token is the caller's own only if the nonce is equal too.
func (r Record) Raise(f Fence) error {
	if r.Fence.Token == 0 || f.Token > r.Fence.Token || r.is(f) {
		return nil
	}
	return &StaleError{Held: f, Current: r.Fence, Since: r.Since}
}

// Enter decides whether a transaction may write under f: only if f is the current
// fence. A store without a fence refuses, because a forgotten fence must not
// mean that everyone may write.
func (r Record) Enter(f Fence) error {
	// No fence is tested first: the zero fence equals the zero record.
	if r.Fence.Token == 0 || f.Token > r.Fence.Token {
		return &NotRaisedError{Held: f, Current: r.Fence}
	}
	if r.is(f) {
		return nil
	}
	return &StaleError{Held: f, Current: r.Fence, Since: r.Since}
}

func (r Record) is(f Fence) bool { return f.Token == r.Fence.Token && f.Nonce == r.Fence.Nonce }

// AdmitRow is the weaker row rule, for stores without a fence of their own: a row
// that was last written under token row may be written under token t if row <= t,
// and is stamped with t. It catches a late writer once a newer holder has written
// that row. It does not see the time between the newer holder's read and its
// write, an insert of a new key, or a re-insert after a delete.
func AdmitRow(row, t Token) bool { return row <= t }
