package locktest

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// A spoiling makes a request bad.
type spoiling struct {
	name  string
	owner bool // Release has to refuse it too
	spoil func(r *lock.Request)
}

var spoilings = []spoiling{
	{"an empty resource", true, func(r *lock.Request) { r.Resource = "" }},
	{"a long resource", true, func(r *lock.Request) { r.Resource += strings.Repeat("r", guard.MaxResource) }},
	{"a resource with a NUL", true, func(r *lock.Request) { r.Resource += "\x00" }},
	{"a resource that is not UTF-8", true, func(r *lock.Request) { r.Resource += "\xff" }},
	{"an empty nonce", true, func(r *lock.Request) { r.Nonce = "" }},
	{"a long nonce", true, func(r *lock.Request) { r.Nonce += strings.Repeat("n", guard.MaxNonce) }},
	{"a nonce with a NUL", true, func(r *lock.Request) { r.Nonce += "\x00" }},
	{"a nonce that is not UTF-8", true, func(r *lock.Request) { r.Nonce += "\xff" }},
	{"a long holder", false, func(r *lock.Request) { r.Holder += strings.Repeat("h", guard.MaxHolder) }},
	{"a holder with a line break", false, func(r *lock.Request) { r.Holder += "\n" }},
	{"no TTL", false, func(r *lock.Request) { r.TTL = 0 }},
	{"a negative TTL", false, func(r *lock.Request) { r.TTL = -time.Second }},
	{"a TTL below 1ms", false, func(r *lock.Request) { r.TTL = time.Millisecond - 1 }},
	{"a TTL above the greatest", false, func(r *lock.Request) { r.TTL = lock.MaxTTL + 1 }},
	{"an endless TTL", false, func(r *lock.Request) { r.TTL = math.MaxInt64 }},
	{"a negative After", false, func(r *lock.Request) { r.After = -5 }},
}

// badRequests makes all of them of a lock that is free, and those of its holder while it
// is held. (How far the counter moved would say more, but others may share it.)
func badRequests(t testing.TB, b lock.Backend) {
	r := request(name(), long)
	for _, s := range spoilings {
		bad := request(r.Resource, long) // with a nonce of its own: what it gets is in r's way
		s.spoil(&bad)
		refuse(t, b, s, bad, r)
	}
	takeInTurn(t, b, r)
	var batch []lock.Request
	for _, s := range spoilings {
		bad := r
		s.spoil(&bad)
		refuse(t, b, s, bad, r)
		batch = append(batch, bad)
	}
	require.Greater(t, held(t, b, r.Resource).Remaining, brief, "a bad request took the lock's life")
	if renewer, ok := b.(lock.BatchRenewer); ok {
		errs := renewer.RenewAll(t.Context(), append(batch, r))
		require.Len(t, errs, len(batch)+1)
		for i, s := range spoilings {
			refused(t, s, "RenewAll", errs[i])
		}
		require.NoError(t, errs[len(batch)], "a bad request cost another of its batch the renewal")
		held(t, b, r.Resource)
	}
	require.NoError(t, b.Release(t.Context(), lock.Request{Resource: r.Resource, Nonce: r.Nonce}), "a release needs no more")
}

// takeInTurn acquires a lock that must be free, and that nobody queues for.
func takeInTurn(t testing.TB, b lock.Backend, r lock.Request) {
	t.Helper()
	if f, ok := b.(lock.FairBackend); ok {
		_, err := f.AcquireInTurn(t.Context(), r, long)
		require.NoError(t, err, "acquire a free lock in turn")
		return
	}
	take(t, b, r)
}

// refuse makes every call that has to refuse a bad request; a pass is one of two.
func refuse(t testing.TB, b lock.Backend, s spoiling, bad, good lock.Request) {
	t.Helper()
	ctx := t.Context()
	_, err := b.Acquire(ctx, bad)
	refused(t, s, "Acquire", err)
	refused(t, s, "Renew", b.Renew(ctx, bad))
	j, joins := b.(lock.Joiner)
	if joins {
		refused(t, s, "Join", j.Join(ctx, bad, "second"))
	}
	f, queues := b.(lock.FairBackend)
	if queues {
		_, err := f.AcquireInTurn(ctx, bad, long)
		refused(t, s, "AcquireInTurn", err)
	}
	if batch, ok := b.(lock.BatchRenewer); ok {
		errs := batch.RenewAll(ctx, []lock.Request{bad})
		require.Len(t, errs, 1)
		refused(t, s, "RenewAll", errs[0])
	}
	p, passes := b.(lock.Passer)
	if passes {
		_, err := p.Pass(ctx, good, bad)
		refused(t, s, "Pass to it", err)
	}
	if !s.owner {
		return
	}
	if passes {
		_, err := p.Pass(ctx, bad, good)
		refused(t, s, "Pass", err)
	}
	refused(t, s, "Release", b.Release(ctx, bad))
	if joins {
		refused(t, s, "Leave", j.Leave(ctx, bad, "second"))
	}
	if queues {
		refused(t, s, "Withdraw", f.Withdraw(ctx, bad))
	}
	if i, ok := b.(lock.Inspector); ok && guard.ValidateResource(bad.Resource) != nil {
		_, err := i.Inspect(ctx, bad.Resource)
		refused(t, s, "Inspect", err)
	}
}

func refused(t testing.TB, s spoiling, call string, err error) {
	t.Helper()
	require.ErrorIs(t, err, guard.ErrInvalid, "%s takes %s", call, s.name)
}
