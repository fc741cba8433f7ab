package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A node that has answered nothing for minSilence gets no more than maxSilent calls:
// each keeps a goroutine and a connection until its client gives up.
const (
	maxSilent  = 64
	minSilence = time.Second
)

var errSilent = errors.New("it answers none of the calls that it already has")

// A node is one of the independent servers.
type node struct {
	rdb   redis.UniversalClient
	index int
	calls atomic.Int64 // under way
	mute  atomic.Bool  // its last call got no reply
	heard atomic.Int64 // when it last answered, or was first asked after that; in nanoseconds since 1970
	debts debts
}

// A call is one script.
type call struct {
	script *redis.Script
	keys   []string
	args   []any
	insist time.Duration // for how long it is repeated to a node that has not heard it
}

// An answer is what one node says to one call.
type answer struct {
	node  int
	reply []string
	err   error
}

// word is the first word of the reply, which says what it is.
func (a answer) word() string {
	if a.err != nil || len(a.reply) == 0 {
		return ""
	}
	return a.reply[0]
}

// part is a later one, "" if the node left it out.
func (a answer) part(i int) string {
	if i >= len(a.reply) {
		return ""
	}
	return a.reply[i]
}

func (n *node) run(ctx context.Context, c call) answer {
	defer n.calls.Add(-1)
	switch calls := n.calls.Add(1); {
	case calls == 1:
		n.heard.Store(time.Now().UnixNano())
	case calls > maxSilent && time.Since(time.Unix(0, n.heard.Load())) > minSilence:
		return answer{node: n.index, err: errSilent}
	}
	reply, err := c.script.Run(ctx, n.rdb, c.keys, c.args...).StringSlice()
	n.mute.Store(err != nil)
	if err != nil {
		return answer{node: n.index, err: explain(err)}
	}
	n.heard.Store(time.Now().UnixNano())
	return answer{node: n.index, reply: reply}
}

// explain adds to an error of a server what its reader can do about it. Before
// Redis 7 the error of a command in a script does not begin with its code.
func explain(err error) error {
	says := func(text string) bool { return strings.Contains(err.Error(), text) }
	switch {
	case says("WRONGTYPE"):
		return fmt.Errorf("a key has something of another kind; nothing was changed, choose another prefix: %w", err)
	case says("READONLY"):
		return fmt.Errorf("the server is a read-only replica; a node is a master of its own: %w", err)
	case says("INFO, which tells of a restart"):
		return fmt.Errorf("allow it, or see WithRestartDelay: %w", err)
	}
	return err
}

// A poll is one call to several nodes, in parallel.
type poll struct {
	answers chan answer
	silent  map[int]bool // nodes that have not answered
	over    <-chan struct{}
	limit   time.Duration
}

// ask calls the nodes. They go on by themselves when the caller has heard enough,
// and after the end of ctx too: what was sent may arrive, and a call that is broken
// off costs its connection. The limit ends them, as far as the client looks at it;
// else its read timeout does.
func (b *Backend) ask(ctx context.Context, limit time.Duration, nodes []*node, c call) *poll {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	p := &poll{
		answers: make(chan answer, len(nodes)), silent: make(map[int]bool, len(nodes)),
		over: ctx.Done(), limit: limit,
	}
	var left atomic.Int64
	left.Store(int64(len(nodes)))
	answered := func() {
		if left.Add(-1) == 0 {
			cancel()
		}
	}
	if len(nodes) == 0 {
		cancel()
	}
	for _, n := range nodes {
		p.silent[n.index] = true
		go func() {
			a := n.run(ctx, c)
			if a.err != nil && ctx.Err() != nil {
				a.err = p.missing() // in one way or the other
			}
			if c.insist > 0 && unheard(a.err) {
				n.owe(debt{c.script, c.keys, c.args, time.Now().Add(c.insist)})
			}
			p.answers <- a
			answered()
		}()
	}
	return p
}

// next returns the next answer. ok is false when all nodes have answered or will not
// any more, or ctx has ended, or enough receives.
func (p *poll) next(ctx context.Context, enough <-chan time.Time) (a answer, ok bool) {
	if len(p.silent) == 0 {
		return a, false
	}
	select {
	case a = <-p.answers:
		delete(p.silent, a.node)
		return a, true
	default:
	}
	select {
	case a = <-p.answers:
	case <-p.over:
		select {
		case a = <-p.answers: // the last one has ended the poll itself
		default:
			return a, false
		}
	case <-ctx.Done():
		return a, false
	case <-enough:
		return a, false
	}
	delete(p.silent, a.node)
	return a, true
}

// missing is the error of a node that has not answered in time.
func (p *poll) missing() error { return fmt.Errorf("no answer within %v", p.limit) }
