package redisguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
)

// ErrEvicts: the server has a memory limit and a maxmemory-policy for all keys, so
// that it may forget any fence.
var ErrEvicts = errors.New("the server evicts keys without a TTL")

// A failure is an error of a script, in Redis' own form.
type failure string

func (f failure) Error() string { return string(f) }

// RedisError makes it a redis.Error, for redis.HasErrorPrefix.
func (f failure) RedisError() {}

// notSent is an error from before anything was sent.
type notSent struct{ error }

func (e notSent) Error() string { return "nothing was sent: " + e.error.Error() }
func (e notSent) Unwrap() error { return e.error }

// notBegun reports whether the server says that it has not begun with the script, for
// a reason that passes.
func notBegun(err error) bool {
	for _, prefix := range []string{"TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// outcome says what became of a script whose reply did not come.
func outcome(ctx context.Context, err error, fences []string) error {
	if _, early := errors.AsType[notSent](err); early {
		return err
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		return fmt.Errorf("nothing was written: %w", explained(err, fences[0]))
	}
	dial, failed := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, redis.ErrClosed):
		return notSent{fmt.Errorf("the client is closed: %w", err)}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), failed && dial.Op == "dial",
		strings.HasPrefix(err.Error(), "redis: can't marshal"): // go-redis has no better sign of a value that it cannot send
		return notSent{err}
	}
	return fmt.Errorf("%w: the reply was lost: %w; acquire the lock again before you look at the data: until then the write may still arrive", guard.ErrCommitUnknown, because(ctx, err))
}

// because adds that ctx has ended. The deadline of a connection is that of ctx, and may
// come a moment earlier.
func because(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if deadline, bounded := ctx.Deadline(); cause == nil && bounded && !time.Now().Before(deadline) {
		cause = context.DeadlineExceeded
	}
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// explained adds to an error of the server what its reader can do about it.
func explained(err error, fence string) error {
	hint := ""
	switch says := func(text string) bool { return strings.Contains(err.Error(), text) }; {
	case says("WRONGTYPE"):
		hint = fmt.Sprintf("%s has something that is no fence; choose another prefix: ", fence)
	case says("READONLY"):
		hint = "the server is a read-only replica; connect to the master, or through Sentinel: "
	case says("NOPERM"), says("can't run this command"):
		hint = fmt.Sprintf("the user needs EVAL, EVALSHA, TIME, HMGET, HSET and EXISTS, and access to the key %s: ", fence)
	case says("TRYAGAIN"):
		hint = "the slot is on its way to another node, try again later: "
	case says("Error compiling script"):
		hint = "the script is no Lua: "
	}
	return fmt.Errorf("%s%w", hint, err)
}

// definite reports whether an error is one that an observer is told of.
func definite(err error) bool {
	for _, meaning := range []error{guard.ErrStale, guard.ErrNotRaised, guard.ErrNoFence, guard.ErrUnguarded, guard.ErrCommitUnknown} {
		if errors.Is(err, meaning) {
			return true
		}
	}
	return false
}

// current is the fence in force that an answer names. It has no nonce, which would
// make a stale holder a current one.
func current(held guard.Fence, answer []any) guard.Record {
	if len(answer) < 5 {
		return guard.Record{}
	}
	text := func(i int) string { s, _ := answer[i].(string); return s }
	var r guard.Record
	_ = r.Fence.Token.UnmarshalText([]byte(text(2))) // the script has looked at it
	r.Fence.Resource, r.Fence.Holder = held.Resource, text(3)
	if since, err := strconv.ParseInt(text(4), 10, 64); err == nil {
		r.Since = time.UnixMicro(since)
	}
	return r
}

func first(answer []any) any {
	if len(answer) == 0 {
		return nil
	}
	return answer[0]
}
