package redlock

import (
	"context"
	"fmt"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// A proposal asks all nodes to promise one token.
type proposal struct {
	*attempt
	call call
	poll *poll
	lost []int // nodes that do not have our lock, or not yet
}

// proposal is not sent yet. above says that token is greater than every counter that
// we have heard of, so that a node that promises it knows as much as they do.
func (a *attempt) proposal(token guard.Token, above bool) *proposal {
	teaches := "0"
	if above {
		teaches = "1"
	}
	return &proposal{attempt: a, call: call{
		script: a.promise, keys: []string{a.keys.lock, a.keys.fence},
		args: []any{a.r.Nonce, token.String(), teaches},
	}}
}

// put returns no error and 0 if a majority accepts. Nodes that granted later than the
// majority may refuse, because they have promised as great a token since the counters
// were read: refused is the greatest counter among these, if they are too many.
func (p *proposal) put(ctx context.Context) (refused guard.Token, err error) {
	p.poll = p.ask(ctx, p.limit, p.nodes, p.call)
	yes := 0
	var failure error
	for yes < p.quorum() {
		a, ok := p.poll.next(ctx, nil)
		if !ok {
			break
		}
		switch a.word() {
		case "accepted":
			yes++
		case "refused":
			refused = max(refused, tokenOf(a.part(1)), 1)
		case "lost":
			p.lost = append(p.lost, a.node)
		default:
			failure = fmt.Errorf("nodes[%d]: %w", a.node, unexpected(a))
		}
	}
	switch {
	case yes >= p.quorum():
		return 0, nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case len(p.lost) > len(p.nodes)-p.quorum():
		return 0, fmt.Errorf("%d of %d nodes no longer have it: %w", len(p.lost), len(p.nodes), lock.ErrLost)
	case refused > 0:
		return refused, nil
	}
	return 0, p.undecided(yes+len(p.lost), p.poll, failure)
}

// late repeats an accepted proposal to the nodes where it has overtaken the request
// for the lock, so that as many as possible know the token.
func (p *proposal) late(ctx context.Context) {
	for {
		a, ok := p.attempt.poll.next(ctx, nil)
		if !ok {
			break
		}
		p.votes[a.node] = voteOf(a)
	}
	for {
		a, ok := p.poll.next(ctx, nil)
		if !ok {
			break
		}
		if a.word() == "lost" {
			p.lost = append(p.lost, a.node)
		}
	}
	var nodes []*node
	for _, i := range p.lost {
		if p.votes[i].word == "granted" {
			nodes = append(nodes, p.nodes[i])
		}
	}
	if len(nodes) > 0 {
		p.ask(ctx, p.limit, nodes, p.call)
	}
}
