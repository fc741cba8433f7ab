package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
)

// ErrUnfinished: something failed that is no part of the story, such as a server.
var ErrUnfinished = errors.New("not played to its end")

// Options say on what the demo plays and how fast.
type Options struct {
	Store    Store            // "": Postgres, or SQLite where there is none to start
	Postgres *target.Postgres // nil: a private server from the machine's binaries
	Redis    *target.Redis    // nil: one in this process
	Worker   []string         // program and arguments that call Work
	Fast     bool             // no time to read along
}

// A Reporter shows what happens. Its errors end the demo.
type Reporter interface {
	Opening(Opening) error // before the first act
	Act(Act) error         // at the beginning of each act
	Event(Event) error
	Result(Result) error // at the end of each act
	Verdict(Verdict) error
}

// Run plays all acts and leaves nothing behind, also where ctx ends first. A
// verdict that is not OK is no error. The error wraps ErrUnfinished, or
// target.ErrUnreachable or localserver.ErrNotInstalled where a server is not to be
// had.
func Run(ctx context.Context, o Options, out Reporter) (v Verdict, err error) {
	id := strings.ToLower(rand.Text()[:10])
	redis, err := openRedis(ctx, o.Redis, "fencing-demo-"+id)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, detached(ctx, redis.close)) }()
	store, err := openStage(ctx, o, "fencing_demo_"+id)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, detached(ctx, store.close)) }()

	p := &play{ctx: ctx, out: out, redis: redis, stage: store, command: o.Worker, ttl: time.Second, beat: 80 * time.Millisecond}
	if o.Fast {
		p.beat = 0
	}
	defer p.dismiss()
	if err := out.Opening(p.opening()); err != nil {
		return v, err
	}
	p.begun = time.Now()
	for _, act := range []func(){p.lockAlone, p.guarded, p.readWindow, p.amnesia} {
		p.perform(act)
	}
	if ctx.Err() != nil {
		return v, context.Cause(ctx)
	}
	if p.err != nil {
		return v, fmt.Errorf("%w: %w", ErrUnfinished, p.err)
	}
	v = judge(p.results)
	return v, out.Verdict(v)
}

// detached cleans up on a context that may be dead.
func detached(ctx context.Context, clean func(context.Context) error) error {
	const bound = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	if err := clean(ctx); err != nil {
		return target.Unreachable(err)
	}
	return nil
}
