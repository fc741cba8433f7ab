package redislock

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

//go:embed publish.lua
var publishLua string

//go:embed spublish.lua
var spublishLua string

//go:embed release.lua
var releaseLua string

//go:embed releases.lua
var releasesLua string

//go:embed notes.lua
var notesLua string

//go:embed next.lua
var nextLua string

//go:embed pass.lua
var passLua string

//go:embed leave.lua
var leaveLua string

// The scripts that free a lock, or a place in its queue, and make it known.
type releaseScripts struct{ release, pass, leave, leaveTurn, withdraw *script }

var (
	published       = newReleaseScripts(publishLua)
	publishedInSlot = newReleaseScripts(spublishLua)
)

func newReleaseScripts(publish string) releaseScripts {
	return releaseScripts{
		release:   newScript(publish + releaseLua + notesLua + nextLua).bundled(&bundleScript{script: newScript(releasesLua), keys: 1, args: 2 + 1}),
		pass:      newScript(publish + notesLua + passLua + releaseLua + nextLua),
		leave:     newScript(publish + notesLua + leaveLua),
		leaveTurn: newScript(publish + notesLua + queueLua + leaveLua),
		withdraw:  newScript(publish + notesLua + queueLua + withdrawLua),
	}
}

// Release implements [lock.Backend]. A lock leaves under its key who had it, unless that
// is somebody else's key too, or may be waited for in turn; and not for long enough if
// its acquisition is still under way somewhere.
func (b *Backend) Release(ctx context.Context, r lock.Request) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	e := b.evaluation(r, "") // its mark is the business of leave
	e.member = r.Nonce
	_, repeated := b.repeated.LoadAndDelete(r.Nonce)
	if b.config.mode != own || b.inTurn.Load() || repeated {
		return b.leave(ctx, e, 0)
	}
	args := [...]any{&e.Lock, &e.Counter, &e.request.Nonce, remembered}
	needed := len(args)
	if !long(r) {
		needed-- // it costs the server time
	}
	reply, err := e.run(ctx, b.calls.do, b.releases.release, 2, args[:needed]...)
	return b.released(ctx, e, reply, err)
}

// Pass implements [lock.Passer], for locks that nobody waits for in turn.
func (b *Backend) Pass(ctx context.Context, r, next lock.Request) (guard.Token, error) {
	if err := cmp.Or(r.ValidateOwner(), next.Validate()); err != nil {
		return 0, err
	}
	_, repeated := b.repeated.Load(r.Nonce)                        // Release deletes it
	if b.config.mode != own || b.config.replicas > 0 || repeated { // replicas are not the releaser's business
		return 0, b.Release(ctx, r)
	}
	e, to := b.evaluation(r, ""), b.evaluation(next, "")
	e.member = r.Nonce
	remember, awaited := "", ""
	if long(r) {
		remember = remembered
	}
	if watched, _ := b.hub.watched(b.feedOf(e.Lock), e.Lock); watched {
		awaited = "awaited"
	}
	reply, err := e.run(ctx, b.calls.do, b.releases.pass, 2, &e.Lock, &e.Counter,
		&e.request.Nonce, remember, &to.request.Nonce, &to.request.Holder, &to.ttl, awaited)
	if _, passed := reply.(string); passed {
		return b.granted(ctx, to, reply, err)
	}
	return 0, b.released(ctx, e, reply, err)
}

// What a release leaves under the key of the lock lives for the rest of its TTL, or, of a
// long one, for a minute: in milliseconds.
const remembered = "60000"

func long(r lock.Request) bool { return r.TTL == 0 || r.TTL > time.Minute }

// released is the outcome of a release that was sent, which leave has to do if the lock
// is not simply that of its nonce, or if a full server refuses what is not freeing alone.
func (b *Backend) released(ctx context.Context, e *evaluation, reply any, err error) error {
	if err == nil && reply == int64(0) || says(err, "OOM") {
		return b.leave(ctx, e, int(e.sent.times))
	}
	return b.outcome("release", e, reply, err)
}

// Leave implements [lock.Joiner].
func (b *Backend) Leave(ctx context.Context, r lock.Request, member string) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	return b.leave(ctx, b.evaluation(r, member), 0)
}

// leave is the release of a lock in whatever state, after a plain one that was sent
// before times, and of one whose state is unknown.
func (b *Backend) leave(ctx context.Context, e *evaluation, before int) error {
	b.all(e)
	var reply any
	var err error
	if b.inTurn.Load() || e.member != e.request.Nonce { // who has joined may never have asked
		reply, err = e.run(ctx, b.calls.do, b.releases.leaveTurn, 5, &e.Lock, &e.rare.Members, &e.Released, &e.rare.Queue, &e.rare.Alive, &e.request.Nonce, &e.member)
	} else {
		reply, err = e.run(ctx, b.calls.do, b.releases.leave, 3, &e.Lock, &e.rare.Members, &e.Released, &e.request.Nonce, &e.member)
	}
	if err == nil && reply == int64(0) && (before > 1 || e.sent.times > 1) {
		return fmt.Errorf("redislock: release %q: its first reply was lost, and the lock is not ours by now: it was freed then, or lost before: %w", e.request.Resource, lock.ErrUnknown)
	}
	return b.outcome("release", e, reply, err)
}
