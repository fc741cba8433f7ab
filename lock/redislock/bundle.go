package redislock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/internal/rediscluster"
)

// A bundleScript does several calls of another script at once, which have nothing but
// their resources and their nonces of their own.
type bundleScript struct {
	*script
	keys     int  // of each call that it needs, the first ones
	args     int  // of each call, all keys included, if it is one of the usual
	acquires bool // a call that gets no lock leaves nothing to be done
}

// A bundle is the calls that one command of a batch does: one, or several that run the
// same script in its usual way, which costs the server and the client less than a command
// for each.
type bundle struct {
	calls  []*waitingCall
	script *bundleScript // of several calls
	eval   bool          // the server does not know the script yet
	sent   sent
	cmd    *redis.Cmd
}

// bundles makes bundles of the calls of a batch.
func (b *batcher) bundles(calls []*waitingCall) []*bundle {
	bundles := make([]*bundle, 0, len(calls))
	if !slices.ContainsFunc(calls, func(c *waitingCall) bool { return c.bundled != nil }) || !b.together() {
		for _, c := range calls {
			bundles = append(bundles, alone(c))
		}
		return bundles
	}
	for _, c := range calls {
		i := slices.IndexFunc(bundles, func(u *bundle) bool { return u.takes(c) })
		if i < 0 {
			bundles = append(bundles, &bundle{script: c.bundled})
			i = len(bundles) - 1
		}
		bundles[i].calls = append(bundles[i].calls, c)
	}
	return bundles
}

func alone(c *waitingCall) *bundle { return &bundle{calls: []*waitingCall{c}} }

// takes reports whether c can be one of the calls of u.
func (u *bundle) takes(c *waitingCall) bool {
	first := u.calls[0]
	return u.script != nil && u.script == c.bundled && first.request.Holder == c.request.Holder && first.ttl == c.ttl
}

func (u *bundle) command(ctx context.Context) *redis.Cmd {
	first := u.calls[0]
	if len(u.calls) == 1 {
		u.script, u.cmd = nil, first.command(ctx)
		return u.cmd
	}
	u.sent.keys = int16(len(u.calls) * u.script.keys)
	args := make([]any, 0, firstKey+len(u.calls)*(u.script.keys+1)+2)
	if u.eval {
		args = append(args, "eval", u.script.source, &u.sent)
	} else {
		args = append(args, "evalsha", u.script.hash, &u.sent)
	}
	for k := range u.script.keys {
		for _, c := range u.calls {
			args = append(args, c.args[firstKey+k])
		}
	}
	nonce := firstKey + int(first.sent.keys)
	for _, c := range u.calls {
		args = append(args, c.args[nonce])
	}
	u.cmd = redis.NewCmd(ctx, append(args, first.args[nonce+1:]...)...)
	u.cmd.SetFirstKeyPos(firstKey)
	return u.cmd
}

// deliver gives the calls their replies. It returns the bundles by which those without
// one are to be done instead.
func (u *bundle) deliver(b *batcher) (instead []*bundle) {
	if u.script == nil {
		u.calls[0].finish(u.cmd.Result())
		return nil
	}
	replies, err := u.cmd.Slice()
	_, refused := errors.AsType[redis.Error](err)
	switch {
	case says(err, "NOSCRIPT") && !u.eval:
		u.eval = true
		u.sent.times-- // it did nothing; one before it may have
		return []*bundle{u}
	case err != nil && !refused:
		for _, c := range u.calls {
			c.finish(nil, err)
		}
		return nil
	case forbidden(err):
		b.apart.Store(time.Now().Add(apartFor).UnixNano())
	}
	for i, c := range u.calls {
		if u.script.acquires && c.left.Load() {
			continue // its lock may have been released by now
		}
		c.sent.times += u.sent.times
		if i < len(replies) && replies[i] != nil {
			c.finish(replies[i], nil)
			continue
		}
		c.sent.times-- // this one did nothing
		instead = append(instead, alone(c))
	}
	return instead
}

// apartFor is how long the calls of a batch go each by itself when several at once are
// forbidden.
const apartFor = time.Minute

// forbidden reports whether a script with keys of several slots, or with the commands
// that a bundle has and a single call has not, is refused for good.
func forbidden(err error) bool {
	return says(err, "CROSSSLOT") || says(err, "NOPERM") || says(err, "can't run this command")
}

// together reports whether all keys are on one server: there is a client for one, and
// what it is connected to is no proxy that sends each key elsewhere.
func (b *batcher) together() bool {
	rdb, single := b.rdb.(*redis.Client)
	if !single || time.Now().UnixNano() < b.apart.Load() {
		return false
	}
	if b.oneServer.Load() {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	keys := b.scheme.Counters()
	var runs []*redis.Cmd
	rediscluster.Stamp(rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := 0; i < len(keys); i += max(1, len(keys)/witnesses) {
			runs = append(runs, p.Eval(ctx, runIDLua, keys[i:i+1]))
		}
		return nil
	}))
	one := !slices.ContainsFunc(runs, func(run *redis.Cmd) bool {
		id, err := run.Text()
		return err != nil || id != runs[0].Val()
	})
	if !one {
		b.apart.Store(time.Now().Add(apartFor).UnixNano())
	}
	b.oneServer.Store(one)
	return one
}

// A proxy for n servers has as many keys on one of them with a chance of
// n^-(witnesses-1).
const witnesses = 16

// runIDLua asks which server has the key that a script is sent with.
const runIDLua = "return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')"
