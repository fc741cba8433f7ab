package locktest_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/memlock"
)

// The two tests below break one rule at a time and name the checks that must see
// it. A suite that a broken back end passes is worse than none.

func TestBrokenBackEndsAreCaught(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flaw
		caughtBy []string
	}{
		"the look at the lock and its grant are two steps": {flaw{checksThenSets: true}, []string{"S15_OrderOfTokensIsOrderOfHolders"}},

		"a repeated acquire is refused":                  {flaw{refusesARepeat: true}, []string{"S21_SameNonceSameToken", "S9_GreaterAfterNewToken"}},
		"a nonce that comes again gets a new token":      {flaw{renumbersARepeat: true}, []string{"S21_SameNonceSameToken", "S9_GreaterAfterNewToken"}},
		"a repeated acquire gets a token that is behind": {flaw{repeatsAnyToken: true}, []string{"S9_GreaterAfterNewToken"}},

		"the counter restarts at a release": {flaw{releaseRestarts: true}, []string{"TokensGrow", "S15_OrderOfTokensIsOrderOfHolders", "S9_GreaterAfterNewToken"}},
		"the counter restarts at an expiry": {flaw{expiryRestarts: true}, []string{"TTLFreesTheLock"}},
		"the token is always the same":      {flaw{next: func(_, after guard.Token) guard.Token { return after + 1 }}, []string{"TokensGrow", "S16_TokensGrowPastAfter"}},
		"there are no tokens":               {flaw{next: func(guard.Token, guard.Token) guard.Token { return 0 }}, []string{"OneHolderAtATime", "TokensGrow"}},
		"After is ignored":                  {flaw{next: func(last, _ guard.Token) guard.Token { return last + 1 }}, []string{"S16_TokensGrowPastAfter", "S9_GreaterAfterNewToken"}},
		"After is taken for the last token": {flaw{next: func(last, after guard.Token) guard.Token { return max(last+1, after) }}, []string{"S16_TokensGrowPastAfter", "S9_GreaterAfterNewToken"}},
		"tokens are floats":                 {flaw{next: func(last, after guard.Token) guard.Token { return guard.Token(float64(max(last, after)) + 1) }}, []string{"S16_TokensGrowPastAfter"}},

		"the TTL is ignored":                    {flaw{ttl: func(time.Duration) time.Duration { return time.Hour }}, []string{"TTLFreesTheLock", "OneHolderAtATime"}},
		"the TTL is cut to seconds":             {flaw{ttl: func(d time.Duration) time.Duration { return d.Truncate(time.Second) }}, []string{"TTLFreesTheLock"}},
		"renewal prolongs nothing":              {flaw{renewDoesNot: true}, []string{"RenewKeepsTheLock"}},
		"renewal creates the lock":              {flaw{renewCreates: true}, []string{"S27_RenewNeverCreates"}},
		"renewal does not compare the nonce":    {flaw{renewsForAnyone: true}, []string{"S27_RenewNeverCreates", "S27_ReleaseNeverTouchesASuccessor", "OwnershipIsEqualityNotPrefix"}},
		"a release does not compare the nonce":  {flaw{releasesForAnyone: true}, []string{"S27_ReleaseNeverTouchesASuccessor", "OwnershipIsEqualityNotPrefix", "TTLFreesTheLock"}},
		"a release that frees nothing succeeds": {flaw{releaseSaysYes: true}, []string{"ReleaseOfWhatWasNeverHeld", "OwnershipIsEqualityNotPrefix", "TTLFreesTheLock"}},
		"a repeated release succeeds":           {flaw{repeatSaysYes: true}, []string{"ReleaseOfWhatWasNeverHeld", "TTLFreesTheLock"}},
		"a release frees nothing":               {flaw{releaseDoesNot: true}, []string{"OneHolderAtATime", "TokensGrow", "S15_OrderOfTokensIsOrderOfHolders"}},

		"nonces are compared up to the shorter one": {flaw{same: func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }}, []string{"OwnershipIsEqualityNotPrefix"}},
		"nonces have no case":                       {flaw{same: strings.EqualFold}, []string{"OwnershipIsEqualityNotPrefix"}},
		"nonces lose their last blanks":             {flaw{same: func(a, b string) bool { return strings.TrimRight(a, " ") == strings.TrimRight(b, " ") }}, []string{"OwnershipIsEqualityNotPrefix"}},

		"names have no case":           {flaw{name: strings.ToLower}, []string{"OddNames"}},
		"names lose their last blanks": {flaw{name: func(r string) string { return strings.TrimRight(r, " ") }}, []string{"OddNames"}},
		"names are cut":                {flaw{name: func(r string) string { return r[:min(len(r), guard.MaxResource-1)] }}, []string{"OddNames"}},
		"all resources share one lock": {flaw{name: func(string) string { return "" }}, []string{"ResourcesAreIndependent", "OddNames"}},
		"a refusal does not say by whom": {
			flaw{held: func(*lock.HeldError) error { return lock.ErrHeld }}, []string{"OneHolderAtATime"},
		},
		"a refusal names no holder": {
			flaw{held: func(e *lock.HeldError) error { e.Holder = ""; return e }}, []string{"OneHolderAtATime", "OddNames"},
		},
		"a refusal does not say for how long": {
			flaw{held: func(e *lock.HeldError) error { e.Remaining = 0; return e }}, []string{"OneHolderAtATime", "RenewKeepsTheLock"},
		},
		"requests are not checked": {
			flaw{valid: func(lock.Request) error { return nil }}, []string{"BadRequestsAreRefused"},
		},
		"the TTL is not checked": {
			flaw{valid: func(r lock.Request) error { r.TTL = time.Second; return r.Validate() }}, []string{"BadRequestsAreRefused"},
		},
		"After is not checked": {
			flaw{valid: func(r lock.Request) error { r.After = 0; return r.Validate() }}, []string{"BadRequestsAreRefused"},
		},
		"the holder is not checked": {
			flaw{valid: func(r lock.Request) error { r.Holder = ""; return r.Validate() }}, []string{"BadRequestsAreRefused"},
		},
		"a release is not checked": {
			flaw{validOwner: func(lock.Request) error { return nil }}, []string{"BadRequestsAreRefused"},
		},
		"a release needs a TTL":                   {flaw{validOwner: lock.Request.Validate}, []string{"BadRequestsAreRefused"}},
		"a bad request is refused too late":       {flaw{refusesLate: true}, []string{"BadRequestsAreRefused"}},
		"a bad renewal costs the lock":            {flaw{refusalLoses: true}, []string{"BadRequestsAreRefused"}},
		"a dead context is not noticed":           {flaw{ignoresDead: true}, []string{"DeadContext"}},
		"a dead context is taken for a held lock": {flaw{deadIsHeld: true}, []string{"DeadContext"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireCaught(t, func() lock.Backend { return newLab(c.flaw) }, c.caughtBy...)
		})
	}
}

func TestBrokenOptionalInterfacesAreCaught(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		broken
		caughtBy string
	}{
		"a stranger joins": {broken{join: func(ctx context.Context, b *memlock.Backend, r lock.Request, member string) error {
			_ = b.Join(ctx, r, member)
			return nil
		}}, "Join"},
		"a member is not counted": {broken{join: func(ctx context.Context, b *memlock.Backend, r lock.Request, _ string) error {
			return b.Renew(ctx, r)
		}}, "Join"},
		"a member shortens the TTL": {broken{join: func(ctx context.Context, b *memlock.Backend, r lock.Request, member string) error {
			err := b.Join(ctx, r, member)
			if err == nil {
				_, err = b.Acquire(ctx, r)
			}
			return err
		}}, "Join"},
		"a stranger leaves": {broken{leave: func(ctx context.Context, b *memlock.Backend, r lock.Request, member string) error {
			_ = b.Leave(ctx, r, member)
			return nil
		}}, "Join"},
		"the last one out frees nothing": {broken{leave: func(context.Context, *memlock.Backend, lock.Request, string) error {
			return nil
		}}, "Join"},
		"a held lock is shown as free": {broken{inspect: func(context.Context, *memlock.Backend, string) (lock.Holding, error) {
			return lock.Holding{}, nil
		}}, "Inspect"},
		"one answer for a whole batch": {broken{renewAll: func(ctx context.Context, b *memlock.Backend, requests []lock.Request) []error {
			return slices.Repeat([]error{b.Renew(ctx, requests[0])}, len(requests))
		}}, "RenewAll"},
		"a batch ends with the first loss": {broken{renewAll: func(ctx context.Context, b *memlock.Backend, requests []lock.Request) (errs []error) {
			for _, r := range requests {
				if errs = append(errs, b.Renew(ctx, r)); errs[len(errs)-1] != nil {
					break
				}
			}
			return errs
		}}, "RenewAll"},
		"a watch never comes into effect": {broken{watch: func(*memlock.Backend, lock.Request) (<-chan struct{}, func()) {
			return nil, func() {}
		}}, "Watch"},
		"a release wakes nobody": {broken{watch: func(*memlock.Backend, lock.Request) (<-chan struct{}, func()) {
			wake := make(chan struct{}, 1)
			wake <- struct{}{}
			return wake, func() {}
		}}, "Watch"},
		"there is no queue": {broken{inTurn: func(ctx context.Context, b *memlock.Backend, r lock.Request, _ time.Duration) (guard.Token, error) {
			return b.Acquire(ctx, r)
		}}, "Fair"},
		"the queue waits for the dead": {broken{inTurn: func(ctx context.Context, b *memlock.Backend, r lock.Request, _ time.Duration) (guard.Token, error) {
			return b.AcquireInTurn(ctx, r, time.Hour)
		}}, "Fair"},
		"a second call costs the place": {broken{inTurn: func(ctx context.Context, b *memlock.Backend, r lock.Request, patience time.Duration) (guard.Token, error) {
			_ = b.Withdraw(ctx, r)
			return b.AcquireInTurn(ctx, r, patience)
		}}, "Fair"},
		"a dead context queues": {broken{inTurn: func(ctx context.Context, b *memlock.Backend, r lock.Request, patience time.Duration) (guard.Token, error) {
			token, err := b.AcquireInTurn(context.WithoutCancel(ctx), r, patience)
			return token, cmp.Or(ctx.Err(), err)
		}}, "Fair"},
		"a bad request joins": {broken{join: func(ctx context.Context, b *memlock.Backend, r lock.Request, member string) error {
			r.TTL = time.Minute
			return b.Join(ctx, r, member)
		}}, "BadRequestsAreRefused"},
		"a bad request leaves": {broken{leave: func(ctx context.Context, b *memlock.Backend, r lock.Request, member string) error {
			if err := b.Leave(ctx, r, member); !errors.Is(err, guard.ErrInvalid) {
				return err
			}
			return lock.ErrLost
		}}, "BadRequestsAreRefused"},
		"a bad request queues": {broken{inTurn: func(ctx context.Context, b *memlock.Backend, r lock.Request, patience time.Duration) (guard.Token, error) {
			r.After = max(r.After, 0)
			return b.AcquireInTurn(ctx, r, patience)
		}}, "BadRequestsAreRefused"},
		"a bad request withdraws": {broken{withdraw: func(ctx context.Context, b *memlock.Backend, r lock.Request) error {
			_ = b.Withdraw(ctx, r)
			return nil
		}}, "BadRequestsAreRefused"},
		"a bad request is inspected": {broken{inspect: func(ctx context.Context, b *memlock.Backend, resource string) (lock.Holding, error) {
			h, _ := b.Inspect(ctx, resource)
			return h, nil
		}}, "BadRequestsAreRefused"},
		"a bad request spoils its batch": {broken{renewAll: func(ctx context.Context, b *memlock.Backend, requests []lock.Request) (errs []error) {
			var first error
			for _, r := range requests {
				first = cmp.Or(first, r.Validate())
			}
			for _, r := range requests {
				errs = append(errs, cmp.Or(first, b.Renew(ctx, r)))
			}
			return errs
		}}, "BadRequestsAreRefused"},
		"nobody can leave the queue": {broken{withdraw: func(context.Context, *memlock.Backend, lock.Request) error {
			return nil
		}}, "Fair"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireCaught(t, func() lock.Backend {
				b := c.broken
				b.Backend = memlock.New()
				return b
			}, c.caughtBy)
		})
	}
}

// requireCaught runs the whole suite, in a bubble, where no wait takes time.
func requireCaught(t *testing.T, open func() lock.Backend, caughtBy ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		failing := locktest.Failing(t, open)
		for _, check := range caughtBy {
			require.Contains(t, failing, check, "the broken back end passes it")
		}
		for check, said := range failing {
			t.Log(check, said)
		}
	})
}

func TestNothingIsWrongWithTheBackEndsThatAreBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		require.Empty(t, locktest.Failing(t, func() lock.Backend { return newLab(flaw{}) }))
		require.Empty(t, locktest.Failing(t, func() lock.Backend { return broken{Backend: memlock.New()} }))
	})
}
