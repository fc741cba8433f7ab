package redislock

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/go-fencing/fencing/lock"
)

//go:embed publish.lua
var publishLua string

//go:embed spublish.lua
var spublishLua string

//go:embed release.lua
var releaseLua string

//go:embed leave.lua
var leaveLua string

// The scripts that free a lock, or a place in its queue, and make it known.
type releaseScripts struct{ release, leave, leaveTurn, withdraw *script }

var (
	published       = newReleaseScripts(publishLua)
	publishedInSlot = newReleaseScripts(spublishLua)
)

func newReleaseScripts(publish string) releaseScripts {
	return releaseScripts{
		release:   newScript(publish + releaseLua),
		leave:     newScript(publish + leaveLua),
		leaveTurn: newScript(publish + queueLua + leaveLua),
		withdraw:  newScript(publish + queueLua + withdrawLua),
	}
}

// Release implements [lock.Backend].
func (b *Backend) Release(ctx context.Context, r lock.Request) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	e := b.evaluation(r, r.Nonce)
	if b.config.mode == own && !b.inTurn.Load() {
		reply, err := e.run(ctx, b.calls.do, b.releases.release, 1, &e.Lock, &e.request.Nonce)
		// A full server refuses what is not freeing alone.
		if err != nil && !says(err, "OOM") || reply == int64(1) {
			return b.outcome("release", e, reply, err)
		}
	}
	return b.leave(ctx, e, e.sent.times)
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
	var reply any
	var err error
	if b.inTurn.Load() || e.member != e.request.Nonce { // who has joined may never have asked
		reply, err = e.run(ctx, b.calls.do, b.releases.leaveTurn, 5, &e.Lock, &e.Members, &e.Released, &e.Queue, &e.Alive, &e.request.Nonce, &e.member)
	} else {
		reply, err = e.run(ctx, b.calls.do, b.releases.leave, 3, &e.Lock, &e.Members, &e.Released, &e.request.Nonce, &e.member)
	}
	if err == nil && reply == int64(0) && (before > 1 || e.sent.times > 1) {
		return fmt.Errorf("redislock: release %q: its first reply was lost, and the lock is not ours by now: it was freed then, or lost before: %w", e.request.Resource, lock.ErrUnknown)
	}
	return b.outcome("release", e, reply, err)
}
