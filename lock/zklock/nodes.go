package zklock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/sequencer"
)

// The nodes of a resource are the children of <prefix>/lock/<resource>, a container
// that ZooKeeper removes when it is empty:
//
//	lock-<hash of the nonce>-<sequence>  who holds the lock, and behind it who queues for it
//	wait-<random>-<sequence>             who wants to be woken
//	offset-<number>                      what is added to the czxid, for good
//
// The name has the nonce's hash, by which a node is found again whose creation was
// not answered. Who may list the nodes does not learn the nonce.
const (
	lockKind   = "lock-"
	waitKind   = "wait-"
	offsetKind = "offset-"
)

func (b *Backend) dir(resource string) string {
	name := url.PathEscape(resource)
	if name == "." || name == ".." { // to ZooKeeper these are no names
		name = strings.ReplaceAll(name, ".", "%2E")
	}
	return b.config.prefix + "/lock/" + name
}

// mark is what the name of a nonce's node begins with.
func mark(nonce string) string {
	sum := sha256.Sum256([]byte(nonce))
	return lockKind + hex.EncodeToString(sum[:16]) + "-"
}

// A node is a lock or a waiter.
type node struct {
	name, mark string
	sequence   int32
}

// A queue is what the children of a resource say.
type queue struct {
	missing        bool // the container
	locks, waiters []node
	offset         int64
	offsetName     string // "" if there is none
}

func parse(names []string) (q queue, err error) {
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, lockKind):
			if n, ok := split(name); ok {
				q.locks = append(q.locks, n)
			}
		case strings.HasPrefix(name, waitKind):
			if n, ok := split(name); ok {
				q.waiters = append(q.waiters, n)
			}
		case strings.HasPrefix(name, offsetKind):
			n, err := strconv.ParseInt(name[len(offsetKind):], 10, 64)
			if err != nil || n < 0 {
				return q, fmt.Errorf("node %.60q has no number that is an offset: %w", name, guard.ErrInvalid)
			}
			if n >= q.offset {
				q.offset, q.offsetName = n, name
			}
		}
	}
	slices.SortFunc(q.locks, order)
	slices.SortFunc(q.waiters, order)
	return q, nil
}

func split(name string) (node, bool) {
	kind := strings.IndexByte(name, '-') + 1
	id := strings.IndexByte(name[kind:], '-')
	if id < 0 {
		return node{}, false
	}
	m := kind + id + 1
	n, err := strconv.ParseInt(name[m:], 10, 32) // after 2147483647 comes -2147483648
	return node{name: name, mark: name[:m], sequence: int32(n)}, err == nil
}

// order is that of creation, also where the sequence has wrapped around: nodes that
// exist at the same time are not two billion creations apart.
func order(a, b node) int { return int(a.sequence - b.sequence) }

// of returns the nodes of a mark. More than one means that the creation of the first
// was not answered and done again.
func (q queue) of(mark string) (mine []node) {
	for _, n := range slices.Concat(q.locks, q.waiters) {
		if n.mark == mark {
			mine = append(mine, n)
		}
	}
	return mine
}

// before returns whose end n waits for, if any: the lock before it; for one that does
// not queue the waiter before it, or else the lock.
func (q queue) before(n node) (predecessor string, ok bool) {
	line := q.locks
	if strings.HasPrefix(n.name, waitKind) {
		line = q.waiters
	}
	i := slices.IndexFunc(line, func(other node) bool { return other.name == n.name })
	switch {
	case i > 0:
		return line[i-1].name, true
	case strings.HasPrefix(n.name, waitKind) && len(q.locks) > 0:
		return q.locks[0].name, true
	}
	return "", false
}

// The data of a lock's node is for those who are refused.
func encode(r lock.Request) []byte {
	return []byte(strconv.FormatInt(r.TTL.Milliseconds(), 10) + "\n" + r.Holder)
}

func decode(data []byte) (ttl time.Duration, holder string) {
	first, holder, _ := strings.Cut(string(data), "\n")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(time.Millisecond) {
		return 0, holder
	}
	return time.Duration(n) * time.Millisecond, holder
}

// token is the zxid that created the lock's node, the offset added. Never the node's
// version or its sequence, which begin anew or wrap.
func (q queue) token(czxid int64) (guard.Token, error) {
	if q.offset > math.MaxInt64-czxid {
		return 0, fmt.Errorf("zxid %d with offset %d; an operator must rebase the resource: %w", czxid, q.offset, sequencer.ErrExhausted)
	}
	return guard.Token(czxid + q.offset), nil
}
