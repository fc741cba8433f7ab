package lock

import (
	"context"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// A hold is one lock that this process has, shared by the leases that re-entered
// it. The fields below fence are guarded by the keeper's mutex.
type hold struct {
	request Request
	member  string      // set if the lock was joined and not acquired
	fence   guard.Fence // complete before the first lease sees the hold

	deadline time.Time // send time of the last successful call + TTL - margin
	end      time.Time // no renewal moves the deadline past it; zero without WithMaxHold
	renewAt  time.Time // zero if the hold is not to be renewed any more
	renewing bool      // a renewal is queued or under way
	index    int       // in the keeper's heap, -1 if not there
	lost     error     // a *LostError once lost
	leases   []*Lease

	stopRaise context.CancelCauseFunc // ends the raise that is under way, if any
	unparent  func() bool             // stops listening to the context the hold was acquired with
}

// next is when the keeper has to look at the hold again.
func (h *hold) next() time.Time {
	if h.renewing || h.renewAt.IsZero() || h.renewAt.After(h.deadline) {
		return h.deadline
	}
	return h.renewAt
}

// prolong moves the deadline after a successful call that was sent at sent.
func (h *hold) prolong(sent time.Time) {
	d := sent.Add(h.request.TTL - margin(h.request.TTL))
	if !h.end.IsZero() && d.After(h.end) {
		d, h.renewAt = h.end, time.Time{}
	}
	if d.After(h.deadline) {
		h.deadline = d
	}
}

// A holdHeap orders holds by next. It implements heap.Interface.
type holdHeap []*hold

func (q holdHeap) Len() int           { return len(q) }
func (q holdHeap) Less(i, j int) bool { return q[i].next().Before(q[j].next()) }
func (q holdHeap) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *holdHeap) Push(x any) {
	h := x.(*hold)
	h.index = len(*q)
	*q = append(*q, h)
}

func (q *holdHeap) Pop() any {
	old := *q
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	h.index = -1
	return h
}
