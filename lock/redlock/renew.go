package redlock

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// Renew implements [lock.Backend]. A node that has no lock of another gets back one
// that a majority has, so that a long lease survives the restart of one node after
// the other.
func (b *Backend) Renew(ctx context.Context, r lock.Request) error {
	return b.RenewAll(ctx, []lock.Request{r})[0]
}

// RenewAll implements [lock.BatchRenewer], with one call to each node: all keys are
// in one slot.
func (b *Backend) RenewAll(ctx context.Context, requests []lock.Request) []error {
	errs := make([]error, len(requests))
	var ballots []*ballot
	c := call{script: renewScript}
	limit := b.config.nodeTimeout
	for i, r := range requests {
		errs[i] = r.Validate()
		if err := ctx.Err(); errs[i] == nil && err != nil {
			errs[i] = fmt.Errorf("redlock: renew %q: %w", r.Resource, err)
		}
		if errs[i] == nil {
			ballots = append(ballots, &ballot{request: r, err: &errs[i]})
			c.keys = append(c.keys, b.config.keys(r).lock)
			c.args = append(c.args, r.Nonce, milliseconds(r.TTL))
			limit = min(limit, b.config.limit(r))
		}
	}
	if len(ballots) == 0 {
		return errs
	}
	p := b.ask(ctx, limit, b.nodes, c)
	b.ballot(ctx, p, ballots)
	go b.restore(context.WithoutCancel(ctx), p, ballots)
	return errs
}

// A ballot is about the renewal of one lock.
type ballot struct {
	request lock.Request
	err     *error
	yes     int
	token   guard.Token
	no      []*node
}

func (b *Backend) decided(v *ballot) bool {
	return v.yes >= b.quorum() || len(v.no) > len(b.nodes)-b.quorum()
}

// ballot collects answers until all are decided, or can no more be.
func (b *Backend) ballot(ctx context.Context, p *poll, ballots []*ballot) {
	var failure error
	answered := 0
	for slices.ContainsFunc(ballots, func(v *ballot) bool { return !b.decided(v) }) {
		a, ok := p.next(ctx, nil)
		if !ok {
			break
		}
		if err := b.enter(a, ballots); err != nil {
			failure = fmt.Errorf("nodes[%d]: %w", a.node, err)
			continue
		}
		answered++
	}
	undecided := ctx.Err()
	for _, v := range ballots {
		what := fmt.Sprintf("redlock: renew %q", v.request.Resource)
		switch {
		case v.yes >= b.quorum():
		case b.decided(v):
			*v.err = fmt.Errorf("%s: %d of %d nodes do not have it: %w", what, len(v.no), len(b.nodes), lock.ErrLost)
		default:
			if undecided == nil {
				undecided = b.undecided(answered, p, failure)
			}
			*v.err = fmt.Errorf("%s: %w", what, undecided)
		}
	}
}

// enter counts what one node says.
func (b *Backend) enter(a answer, ballots []*ballot) error {
	if a.err != nil || len(a.reply) != 2*len(ballots) {
		return unexpected(a)
	}
	for i, v := range ballots {
		if a.reply[2*i] == "yes" {
			v.yes++
			v.token = max(v.token, tokenOf(a.reply[2*i+1]))
		} else {
			v.no = append(v.no, b.nodes[a.node])
		}
	}
	return nil
}

// restore waits for the rest of the answers, and gives the locks that were renewed
// back to the nodes without them.
func (b *Backend) restore(ctx context.Context, p *poll, ballots []*ballot) {
	for {
		a, ok := p.next(ctx, nil)
		if !ok {
			break
		}
		_ = b.enter(a, ballots)
	}
	for _, v := range ballots {
		if v.yes < b.quorum() || len(v.no) == 0 || v.token == 0 {
			continue
		}
		r, keys := v.request, b.config.keys(v.request)
		b.ask(ctx, b.config.limit(r), v.no, call{
			script: restoreScript, keys: []string{keys.lock, keys.fence, keys.mark},
			args: []any{r.Nonce, r.Holder, milliseconds(r.TTL), v.token.String()},
		})
	}
}
