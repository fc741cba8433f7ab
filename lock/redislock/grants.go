package redislock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// A grant is what a release says that passes the lock on to one that was noted as
// waiting. It saves that one the question and the answer.
//
// When it was granted is reckoned from the time at which the waiter sent the question
// with which it was noted, its number, and from how long ago that was by the server's
// clock. So a message that was under way for long makes nobody live in the past.
type grant struct {
	nonce  string
	token  guard.Token
	number time.Duration
	waited time.Duration // from then to the grant, at least
	left   time.Duration // to live, from the grant on

	received time.Time
}

func parseGrant(message string) (g grant, ok bool) {
	parts := strings.Split(message, "\t")
	if len(parts) != 5 {
		return grant{}, false
	}
	var n [4]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(parts[1+i], 10, 64); err != nil {
			return grant{}, false
		}
	}
	return grant{parts[0], guard.Token(n[0]), time.Duration(n[1]), time.Duration(n[2]) * time.Millisecond, time.Duration(n[3]) * time.Millisecond, time.Now()}, true
}

// number is that of one that asks now: the time since the begin of the back end, from
// an offset on that makes it unlike those of others. 0 is that of all who do not listen.
func (h *hub) number() int64 { return int64(h.offset + time.Since(h.begun)) }

// asked returns when the one with a number did ask; ok is false if it is not of this
// back end.
func (h *hub) asked(number time.Duration) (at time.Time, ok bool) {
	at = h.begun.Add(number - h.offset)
	return at, number >= h.offset && !at.After(time.Now())
}

// AcquireWaiting implements [lock.Granter].
func (b *Backend) AcquireWaiting(ctx context.Context, r lock.Request) (guard.Token, error) {
	return b.acquire(ctx, r, true)
}

// Claim implements [lock.Granter].
func (b *Backend) Claim(r lock.Request) (token guard.Token, until time.Time, ok bool) {
	name := b.config.usual(r.Resource, "").Lock
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	c := b.hub.channel(b.feedOf(name), name)
	if c == nil || c.grant.nonce != r.Nonce {
		return 0, until, false
	}
	g := c.grant
	c.grant = grant{}
	granted, ok := b.hub.asked(g.number)
	granted = granted.Add(g.waited)
	if g.received.Before(granted) { // the server's clock was set
		granted = g.received
	}
	until = granted.Add(g.left)
	return g.token, until, ok && time.Until(until) > g.left/2 // it has to renew in time
}
