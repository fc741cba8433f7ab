package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/sequencer"
)

const (
	maxTokens   = 3 // that one acquisition proposes
	maxContests = 8 // of a split vote, by the contender that goes first
	contestWait = 2 * time.Millisecond
	graceWait   = 3 * time.Millisecond // for the rest of a split vote
	retractWait = 10 * time.Millisecond
)

// errSpent: the undo of an acquisition may overtake it.
var errSpent = errors.New("this acquisition was released before it arrived")

// Acquire implements [lock.Backend]. Beyond the errors named there it returns
// sequencer.ErrJump if r.After is implausibly far ahead of the counters, and
// sequencer.ErrExhausted at the end of the integers. A vote that is split among
// contenders is lock.ErrHeld, as is one that waits for nodes which have forgotten.
// After an error the nodes that granted are freed: before it returns lock.ErrHeld, but
// for nodes much slower than the rest, which are freed in the background, as all are
// after another error.
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("redlock: acquire %q: %w", r.Resource, err)
	}
	a := &attempt{
		Backend: b, r: r, keys: b.config.keys(r), try: b.tries.Add(1),
		begun: b.now(), limit: b.config.limit(r), votes: make(map[int]vote, len(b.nodes)),
	}
	err := a.canvass(ctx)
	var token guard.Token
	if err == nil {
		token, err = a.agree(ctx)
	}
	// The locks have lived since some time after begun. How much less of the TTL the
	// holder counts on, for the drift of clocks, is the business of the locker: see
	// margin in package lock.
	if err == nil && b.now().Sub(a.begun) >= r.TTL {
		err = fmt.Errorf("its TTL of %v ended before a majority agreed: %w", r.TTL, lock.ErrLost)
	}
	if err == nil {
		go a.agreed.late(context.WithoutCancel(ctx))
		return token, nil
	}
	left := a.retract(ctx)
	if held, ok := errors.AsType[*lock.HeldError](err); ok {
		refused := time.Now()
		a.retracted(ctx, left)
		held.Remaining = max(0, held.Remaining-time.Since(refused))
		return 0, held
	}
	return 0, fmt.Errorf("redlock: acquire %q: %w", r.Resource, err)
}

// An attempt is one Acquire.
type attempt struct {
	*Backend
	r      lock.Request
	keys   keys
	try    int64 // tells apart what attempts of one nonce did, and which was later
	begun  time.Time
	sent   time.Time // when the nodes were last asked for their votes
	limit  time.Duration
	votes  map[int]vote // of the nodes, by index
	poll   *poll
	agreed *proposal
}

// A vote is a node's answer to the first phase.
type vote struct {
	err      error
	word     string // granted, held, waiting or spent
	counter  guard.Token
	whole    bool // the node has forgotten nothing
	token    guard.Token
	holder   string
	left     time.Duration
	promised bool // its holder has a token: it has won, or is about to
	yields   bool // its holder gives way to us in a split vote
}

func voteOf(a answer) vote {
	v := vote{word: a.word(), counter: tokenOf(a.part(1)), whole: a.part(2) == "whole"}
	switch v.word {
	case "granted":
		v.token = tokenOf(a.part(3))
	case "held":
		v.holder, v.left = a.part(3), duration(a.part(4))
		v.promised, v.yields = a.part(5) != "", a.part(6) != ""
	case "waiting":
		v.holder, v.left = "someone whom a node that is new or was restarted may have forgotten", duration(a.part(3))
	case "spent":
	default:
		v.err = unexpected(a)
	}
	return v
}

// canvass is the first phase: it takes the lock on a majority of the nodes, and
// learns their counters.
func (a *attempt) canvass(ctx context.Context) error {
	nodes := a.nodes
	for contest := 0; ; contest++ {
		if err := a.collect(ctx, nodes); err != nil {
			return err
		}
		if a.won() {
			return nil
		}
		if contest == maxContests || a.tally("held") == 0 || !a.first() || a.now().Sub(a.begun) > a.limit {
			return a.refused()
		}
		// The others give way, but perhaps have not yet.
		select {
		case <-time.After(contestWait/2 + rand.N(contestWait)):
		case <-ctx.Done():
			return ctx.Err()
		}
		nodes = slices.DeleteFunc(slices.Clone(a.nodes), func(n *node) bool { return a.votes[n.index].word != "held" })
	}
}

// collect asks nodes for their votes, until these decide.
func (a *attempt) collect(ctx context.Context, nodes []*node) error {
	for _, n := range nodes {
		delete(a.votes, n.index)
	}
	k := a.keys
	a.poll = a.ask(ctx, a.limit, nodes, call{
		script: grantScript, keys: []string{k.lock, k.fence, k.waiting, k.mark, a.tryMark()},
		args: []any{a.r.Nonce, a.r.Holder, milliseconds(a.r.TTL), a.try, milliseconds(a.config.delay(a.r))},
	})
	a.sent = time.Now()
	var enough <-chan time.Time
	for !a.won() && !a.hopeless() {
		answer, ok := a.poll.next(ctx, enough)
		if !ok {
			return ctx.Err()
		}
		v := voteOf(answer)
		if v.word == "spent" {
			return errSpent
		}
		a.votes[answer.node] = v
		// The vote of the majority is split. A node that hangs could decide it, but
		// until then those who have a part of it would keep everybody out.
		if granted := a.tally("granted"); enough == nil && granted < a.quorum() && granted+a.tally("held", "waiting") >= a.quorum() {
			timer := time.NewTimer(graceWait + 2*time.Since(a.sent))
			defer timer.Stop()
			enough = timer.C
		}
	}
	return nil
}

func (a *attempt) tally(words ...string) int {
	n := 0
	for _, v := range a.votes {
		if v.err == nil && slices.Contains(words, v.word) {
			n++
		}
	}
	return n
}

func (a *attempt) won() bool { return a.tally("granted") >= a.quorum() && a.informed() }

// informed reports whether the greatest counter among the votes is no less than any
// token that a majority ever agreed on. Each such majority has a node among those
// heard which remembers it, if they are so many that they leave no room for a quorum
// elsewhere. Where fewer remember, because the nodes are new or too many have
// forgotten, the best there is is to hear them all.
func (a *attempt) informed() bool {
	heard, remember := 0, 0
	for _, v := range a.votes {
		if v.err != nil {
			continue
		}
		heard++
		if v.whole {
			remember++
		}
	}
	return remember > len(a.nodes)-a.quorum() || heard == len(a.nodes)
}

// first reports whether those who hold nodes are contenders as we are, and give way to
// us. Of all who have a part of a split vote one keeps it; without that order they
// could take it from each other for ever.
func (a *attempt) first() bool {
	for _, v := range a.votes {
		if v.word == "waiting" || v.word == "held" && (v.promised || !v.yields) {
			return false
		}
	}
	return true
}

// hopeless reports whether too many nodes have refused.
func (a *attempt) hopeless() bool {
	return a.tally("held", "waiting") > len(a.nodes)-a.quorum() && !a.first()
}

// refused is why there is no majority of grants.
func (a *attempt) refused() error {
	granted, refusals := a.tally("granted"), a.tally("held", "waiting")
	if refusals > len(a.nodes)-a.quorum() || granted < a.quorum() && granted+refusals >= a.quorum() {
		return a.held()
	}
	var failure error
	for i, v := range a.votes {
		if v.err != nil {
			failure = fmt.Errorf("nodes[%d]: %w", i, v.err)
		}
	}
	err := a.undecided(granted+refusals, a.poll, failure)
	if granted >= a.quorum() {
		return fmt.Errorf("too many nodes are new or have forgotten their counter, so that all of them have to be heard: %w", err)
	}
	return err
}

// held names the one who has most of the nodes, and until when they keep us from
// having a majority.
func (a *attempt) held() error {
	count := make(map[string]int)
	var lefts []time.Duration
	for _, v := range a.votes {
		if v.err == nil && v.word != "granted" {
			count[v.holder]++
			lefts = append(lefts, v.left)
		}
	}
	e := &lock.HeldError{Resource: a.r.Resource}
	for holder, n := range count {
		if n > count[e.Holder] || n == count[e.Holder] && holder > e.Holder {
			e.Holder = holder
		}
	}
	slices.Sort(lefts)
	// Not all of them have answered, perhaps.
	if need := min(a.quorum()-a.tally("granted"), len(lefts)); need > 0 {
		e.Remaining = lefts[need-1]
	}
	return e
}

// agree is the second phase: a majority promises a token. Each node does so only if
// the lock there is still ours and it has promised none as great for it, or the
// token of a lock that was lost meanwhile could be the one of its next holder.
func (a *attempt) agree(ctx context.Context) (guard.Token, error) {
	greatest, token := guard.Token(0), guard.Token(0)
	for _, v := range a.votes {
		greatest, token = max(greatest, v.counter), max(token, v.token)
	}
	proposed := token > a.r.After // in an earlier attempt of this nonce
	for range maxTokens {
		if !proposed {
			var err error
			if token, err = sequencer.Advance(greatest, a.r.After, a.config.maxJump); err != nil {
				return 0, err
			}
		}
		p := a.proposal(token, !proposed)
		refused, err := p.put(ctx)
		if err == nil && refused == 0 {
			a.agreed = p
			return token, nil
		}
		if err != nil {
			return 0, err
		}
		greatest, proposed = max(greatest, token, refused), false
	}
	return 0, fmt.Errorf("%d tokens up to %d were refused", maxTokens, token)
}

// tryMark is the key that says that this try is over.
func (a *attempt) tryMark() string { return a.keys.mark + ":" + strconv.FormatInt(a.try, 10) }

// retract frees what this attempt may have got, and returns the poll of that. The
// nonce stays good for another one.
func (a *attempt) retract(ctx context.Context) *poll {
	var nodes []*node
	for _, n := range a.nodes {
		if w := a.votes[n.index].word; w != "held" && w != "waiting" {
			nodes = append(nodes, n)
		}
	}
	return a.ask(ctx, a.limit, nodes, call{
		script: retractScript, keys: []string{a.keys.lock, a.tryMark()},
		args: []any{a.r.Nonce, a.try, milliseconds(markLife)}, insist: a.r.TTL,
	})
}

// retracted waits for the answers of p, though not much longer than the votes took, and
// not for a node that gave none to its last call. The grants of an attempt that lost may
// still be under way: one that arrives after the winner has released, and before it is
// taken back, keeps out the next one, whom nobody would expect to be refused.
func (a *attempt) retracted(ctx context.Context, p *poll) {
	timer := time.NewTimer(retractWait + 2*time.Since(a.sent))
	defer timer.Stop()
	answers := func(n *node) bool { return p.silent[n.index] && !n.mute.Load() }
	for slices.ContainsFunc(a.nodes, answers) {
		if _, ok := p.next(ctx, timer.C); !ok {
			return
		}
	}
}
