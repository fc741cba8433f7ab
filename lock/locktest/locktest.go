// Package locktest checks an implementation of lock.Backend. A back end's own test
// is one call:
//
//	func TestBackend(t *testing.T) {
//		locktest.Run(t, func(t *testing.T) lock.Backend { return mylock.New(…) })
//	}
//
// The optional interfaces that the back end implements are checked too.
package locktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// Run checks the back ends that open returns, one for each subtest. They may
// share a server: every subtest uses resources of its own. Set TTLs are as short
// as 200ms, so a back end with a coarser clock fails.
func Run(t *testing.T, open func(t *testing.T) lock.Backend) {
	for _, c := range append(checks(), optional(open(t))...) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t))
		})
	}
}

// A check fails by FailNow and Errorf alone, so that a test of the suite can see it
// fail.
type check struct {
	name string
	run  func(t testing.TB, b lock.Backend)
}

// checks returns those of every back end.
func checks() []check {
	return []check{
		{"OneHolderAtATime", oneHolder},
		{"TokensGrow", tokensGrow},
		{"S16_TokensGrowPastAfter", tokensGrowPastAfter},
		{"S21_SameNonceSameToken", sameNonce},
		{"S9_GreaterAfterNewToken", repair},
		{"TTLFreesTheLock", ttlFrees},
		{"RenewKeepsTheLock", renewKeeps},
		{"S27_RenewNeverCreates", renewNeverCreates},
		{"S27_ReleaseNeverTouchesASuccessor", releaseSuccessor},
		{"OwnershipIsEqualityNotPrefix", prefixes},
		{"ReleaseOfWhatWasNeverHeld", neverHeld},
		{"OddNames", oddNames},
		{"ResourcesAreIndependent", independent},
		{"S15_OrderOfTokensIsOrderOfHolders", manyContenders},
		{"DeadContext", deadContext},
		{"BadRequestsAreRefused", badRequests},
	}
}

const (
	long  = time.Minute // a TTL that does not end during a test
	short = 200 * time.Millisecond
	brief = long / 6 // one that a busy machine does not sleep through
)

func request(resource string, ttl time.Duration) lock.Request {
	return lock.Request{Resource: resource, Nonce: rand.Text(), Holder: "holder " + rand.Text(), TTL: ttl}
}

func name() string { return "locktest:" + rand.Text() }

// take acquires a lock that must be free.
func take(t testing.TB, b lock.Backend, r lock.Request) guard.Token {
	t.Helper()
	token, err := b.Acquire(t.Context(), r)
	require.NoError(t, err, "acquire a free lock")
	require.Positive(t, token)
	return token
}

// free waits until another can have the lock, and returns its token.
func free(t testing.TB, b lock.Backend, resource string) guard.Token {
	t.Helper()
	r := request(resource, long)
	var token guard.Token
	eventually(t, "the lock does not become free", func() error {
		var err error
		token, err = b.Acquire(t.Context(), r)
		return err
	})
	return token
}

// eventually repeats call while the lock is held.
func eventually(t testing.TB, what string, call func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		err := call()
		if err == nil {
			return
		}
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, pause(ctx), what)
	}
}

// pause waits a little before another try, or says that the time for it is over.
func pause(ctx context.Context) error {
	select {
	case <-time.After(time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func held(t testing.TB, b lock.Backend, resource string) *lock.HeldError {
	t.Helper()
	_, err := b.Acquire(t.Context(), request(resource, long))
	require.ErrorIs(t, err, lock.ErrHeld)
	e, ok := errors.AsType[*lock.HeldError](err)
	require.True(t, ok, "ErrHeld comes as a *HeldError, got %T", err)
	return e
}

func oneHolder(t testing.TB, b lock.Backend) {
	r := request(name(), long)
	take(t, b, r)
	e := held(t, b, r.Resource)
	require.Equal(t, r.Resource, e.Resource)
	require.Equal(t, r.Holder, e.Holder)
	require.Greater(t, e.Remaining, time.Duration(0))
	require.LessOrEqual(t, e.Remaining, long+time.Second)
	require.NoError(t, b.Release(t.Context(), r))
	take(t, b, request(r.Resource, long))
}

func tokensGrow(t testing.TB, b lock.Backend) {
	resource := name()
	last := guard.Token(0)
	for range 20 {
		r := request(resource, long)
		token := take(t, b, r)
		require.Greater(t, token, last, "tokens of one resource must grow")
		last = token
		require.NoError(t, b.Release(t.Context(), r))
	}
}

func tokensGrowPastAfter(t testing.TB, b lock.Backend) {
	r := request(name(), long)
	// Past the integers that a double holds exactly: no client in between may
	// have taken the token for a number of its own (S16).
	r.After = take(t, b, r) + 1<<53
	require.NoError(t, b.Release(t.Context(), r))
	seen := map[guard.Token]bool{}
	for range 5 {
		r.Nonce = rand.Text()
		token := take(t, b, r)
		require.Greater(t, token, r.After)
		require.False(t, seen[token], "token %d was handed out twice", token)
		seen[token] = true
		require.NoError(t, b.Release(t.Context(), r))
	}
}

func sameNonce(t testing.TB, b lock.Backend) {
	r := request(name(), long)
	first := take(t, b, r)
	require.Equal(t, first, take(t, b, r), "an attempt whose reply was lost is repeated with its nonce")
	require.NoError(t, b.Release(t.Context(), r))
	take(t, b, request(r.Resource, long))
}

func repair(t testing.TB, b lock.Backend) {
	r := request(name(), long)
	first := take(t, b, r)
	r.After = first + 1000
	second := take(t, b, r)
	require.Greater(t, second, r.After)
	require.Equal(t, second, take(t, b, r), "a token greater than After is kept")
	held(t, b, r.Resource)
	require.NoError(t, b.Release(t.Context(), r))
	require.Greater(t, take(t, b, request(r.Resource, long)), second)
}

func ttlFrees(t testing.TB, b lock.Backend) {
	r, token := takeBriefly(t, b)
	require.Greater(t, free(t, b, r.Resource), token)
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	neverReleases(t, b, r)
	held(t, b, r.Resource)
}

// neverReleases releases what is not held as often as a client does by itself when it
// misses a reply: each time it is lost.
func neverReleases(t testing.TB, b lock.Backend, r lock.Request) {
	t.Helper()
	for range 2 {
		require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	}
}

// takeBriefly acquires a lock for a short TTL, and sees it held until then. That
// takes another try if the machine was too busy to look in time.
func takeBriefly(t testing.TB, b lock.Backend) (lock.Request, guard.Token) {
	t.Helper()
	for {
		r := request(name(), short)
		begun := time.Now()
		token := take(t, b, r)
		_, err := b.Acquire(t.Context(), request(r.Resource, long))
		if err == nil && time.Since(begun) >= short {
			continue
		}
		require.ErrorIs(t, err, lock.ErrHeld, "before the TTL has ended")
		return r, token
	}
}

func renewKeeps(t testing.TB, b lock.Backend) {
	r := request(name(), brief)
	take(t, b, r)
	r.TTL = long
	require.NoError(t, b.Renew(t.Context(), r))
	require.Greater(t, held(t, b, r.Resource).Remaining, brief)
}

func renewNeverCreates(t testing.TB, b lock.Backend) {
	r := request(name(), long)
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	take(t, b, request(r.Resource, long))
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
}

func releaseSuccessor(t testing.TB, b lock.Backend) {
	old := request(name(), long)
	take(t, b, old)
	require.NoError(t, b.Release(t.Context(), old))
	successor := request(old.Resource, long)
	take(t, b, successor)
	require.ErrorIs(t, b.Renew(t.Context(), old), lock.ErrLost)
	// A back end may remember that old released, and say so again; what it must
	// not do is free the successor's lock.
	if err := b.Release(t.Context(), old); err != nil {
		require.ErrorIs(t, err, lock.ErrLost)
	}
	held(t, b, old.Resource)
	require.NoError(t, b.Renew(t.Context(), successor))
}

func prefixes(t testing.TB, b lock.Backend) {
	r := request(name(), long)
	r.Nonce = "worker-10"
	take(t, b, r)
	for _, nonce := range []string{"worker-1", "worker-100", "WORKER-10", "worker-10 "} {
		other := r
		other.Nonce = nonce
		_, err := b.Acquire(t.Context(), other)
		require.ErrorIs(t, err, lock.ErrHeld, "nonce %q", nonce)
		require.ErrorIs(t, b.Renew(t.Context(), other), lock.ErrLost, "nonce %q", nonce)
		require.ErrorIs(t, b.Release(t.Context(), other), lock.ErrLost, "nonce %q", nonce)
	}
	require.NoError(t, b.Release(t.Context(), r))
}

func neverHeld(t testing.TB, b lock.Backend) {
	r := request(name(), long)
	neverReleases(t, b, r)
	take(t, b, request(r.Resource, long))
}

func oddNames(t testing.TB, b lock.Backend) {
	id := rand.Text()
	cut := strings.Repeat("n", guard.MaxResource-len(id)-1) + id
	names := []string{id + "x", id + "X", id + "x ", cut + "a", cut + "b"}
	for _, odd := range []string{"a b", "{", "}", "{}", "{x}y", "a/b:c", "../a", "%41%", `back\slash'"`, "сток", "🔒", "*?["} {
		names = append(names, odd+id)
	}
	var requests []lock.Request
	for _, odd := range names { // all of them at once: none may stand for another
		r := request(odd, long)
		r.Holder = odd[:min(len(odd), guard.MaxHolder)]
		take(t, b, r)
		requests = append(requests, r)
	}
	for _, r := range requests {
		require.Equal(t, r.Holder, held(t, b, r.Resource).Holder)
		require.NoError(t, b.Renew(t.Context(), r))
		require.NoError(t, b.Release(t.Context(), r))
	}
}

func independent(t testing.TB, b lock.Backend) {
	base := name()
	var requests []lock.Request
	for i := range 50 {
		r := request(fmt.Sprintf("%s:%d", base, i), long)
		take(t, b, r)
		requests = append(requests, r)
	}
	for _, r := range requests {
		require.NoError(t, b.Release(t.Context(), r))
	}
}

func manyContenders(t testing.TB, b lock.Backend) {
	resource := name()
	var (
		inside atomic.Int32
		mu     sync.Mutex
		tokens []guard.Token
		wg     sync.WaitGroup
	)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 8 {
		wg.Go(func() {
			for done := 0; done < 5; {
				r := request(resource, long)
				token, err := b.Acquire(ctx, r)
				if errors.Is(err, lock.ErrHeld) {
					err = pause(ctx)
					if err == nil {
						continue
					}
				}
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d holders at once", n)
				}
				mu.Lock()
				tokens = append(tokens, token)
				mu.Unlock()
				runtime.Gosched()
				inside.Add(-1)
				if err := b.Release(ctx, r); err != nil {
					t.Errorf("release: %v", err)
				}
				done++
			}
		})
	}
	wg.Wait()
	for i := 1; i < len(tokens); i++ {
		require.Greater(t, tokens[i], tokens[i-1], "order of tokens is the order of holders (S15)")
	}
}

func deadContext(t testing.TB, b lock.Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := request(name(), long)
	_, err := b.Acquire(ctx, r)
	require.Error(t, err)
	require.NotErrorIs(t, err, lock.ErrHeld)
	require.Error(t, b.Renew(ctx, r))
}
