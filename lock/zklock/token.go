package zklock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/sequencer"
)

// above returns the token of the lock whose node is h's. If it is not greater than
// r.After, the offset grows so that it is, for good. Nobody but the holder lets it grow,
// so that no other holder's token changes.
func (b *Backend) above(ctx context.Context, h *hold, r lock.Request, q queue, czxid int64) (guard.Token, error) {
	token, err := q.token(czxid)
	switch {
	case err != nil:
		return 0, err
	case token > r.After:
		return token, nil
	case r.After == math.MaxInt64:
		return 0, fmt.Errorf("a token above %d is asked for; an operator must run \"fencectl rebase\": %w", r.After, sequencer.ErrExhausted)
	case r.After-token > sequencer.DefaultMaxJump:
		return 0, fmt.Errorf("a token above %d is asked for where ZooKeeper is at %d; the fence in the store is probably poisoned, an operator must run \"fencectl rebase\": %w", r.After, token, sequencer.ErrJump)
	}
	name, _ := b.node(h)
	next := int64(r.After) + 1 - czxid
	ops := []any{
		&zk.CheckVersionRequest{Path: h.dir + "/" + name, Version: -1}, // it exists
		&zk.CreateRequest{Path: h.dir + "/" + offsetKind + strconv.FormatInt(next, 10), Acl: b.config.acl, Flags: zk.FlagPersistent},
	}
	if q.offsetName != "" {
		ops = append(ops, &zk.DeleteRequest{Path: h.dir + "/" + q.offsetName, Version: -1})
	}
	_, err = call(ctx, b.session, func(c *zk.Conn) (struct{}, error) {
		_, err := c.Multi(ops...)
		return struct{}{}, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists), interrupted(err):
		// The lock has ended, or this was carried out before and its reply is lost.
		return 0, errAgain
	case err != nil:
		return 0, err
	}
	return r.After + 1, nil
}

// make creates a directory and those above it that are missing. A container is removed
// by ZooKeeper, within a minute or so, when it is empty.
func (b *Backend) make(ctx context.Context, dir string, container bool) error {
	for {
		_, err := try(ctx, b.session, func(c *zk.Conn) (struct{}, error) {
			var err error
			if container {
				_, err = c.CreateContainer(dir, nil, zk.FlagContainer, b.config.acl)
			} else {
				_, err = c.Create(dir, nil, zk.FlagPersistent, b.config.acl)
			}
			return struct{}{}, err
		})
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode) || path.Dir(dir) == "/":
			return err
		}
		if err := b.make(ctx, path.Dir(dir), false); err != nil {
			return err
		}
	}
}
