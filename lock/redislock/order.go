package redislock

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// apartFor is how long the calls of a batch go each by itself after the server has
// refused several at once.
const apartFor = time.Minute

// An order is one command of a batch: for one call, or for several that run the same
// script in its usual way, which costs the server and the client less than a command
// for each.
type order struct {
	calls []*waitingCall
	many  *many // does several calls
	eval  bool  // the server does not know it yet
	sent  sent
	cmd   *redis.Cmd
}

// orders makes orders of calls.
func (b *batcher) orders(calls []*waitingCall) []*order {
	_, slotless := b.rdb.(*redis.Client)
	together := slotless && time.Now().UnixNano() >= b.apart.Load()
	var orders []*order
	for _, c := range calls {
		if o := find(orders, c); o != nil {
			o.calls = append(o.calls, c)
			continue
		}
		o := &order{calls: []*waitingCall{c}}
		if together {
			o.many = c.many
		}
		orders = append(orders, o)
	}
	return orders
}

// find returns the order of which c can be a part.
func find(orders []*order, c *waitingCall) *order {
	for _, o := range orders {
		first := o.calls[0]
		if o.many != nil && o.many == c.many && first.request.Holder == c.request.Holder && first.ttl == c.ttl {
			return o
		}
	}
	return nil
}

func (o *order) command(ctx context.Context) *redis.Cmd {
	first := o.calls[0]
	if len(o.calls) == 1 {
		o.many, o.cmd = nil, first.command(ctx)
		return o.cmd
	}
	o.sent.keys = int16(len(o.calls) * o.many.keys)
	args := make([]any, 0, firstKey+len(o.calls)*(o.many.keys+1)+2)
	if o.eval {
		args = append(args, "eval", o.many.source, &o.sent)
	} else {
		args = append(args, "evalsha", o.many.hash, &o.sent)
	}
	for k := range o.many.keys {
		for _, c := range o.calls {
			args = append(args, c.args[firstKey+k])
		}
	}
	nonce := firstKey + int(first.sent.keys)
	for _, c := range o.calls {
		args = append(args, c.args[nonce])
	}
	args = append(args, first.args[nonce+1:]...)
	o.cmd = redis.NewCmd(ctx, args...)
	o.cmd.SetFirstKeyPos(firstKey)
	return o.cmd
}

// settle gives the calls their replies. It returns the orders by which those without
// one are to be made instead.
func (o *order) settle(b *batcher) (instead []*order) {
	if o.many == nil {
		o.calls[0].finish(o.cmd.Result())
		return nil
	}
	replies, err := o.cmd.Slice()
	_, refused := errors.AsType[redis.Error](err)
	switch {
	case says(err, "NOSCRIPT") && !o.eval:
		o.eval = true
		o.sent.times-- // it did nothing; one before it may have
		return []*order{o}
	case refused: // by a Cluster behind a client that knows of none, or a user's rights
		b.apart.Store(time.Now().Add(apartFor).UnixNano())
	case err != nil:
		for _, c := range o.calls {
			c.finish(nil, err)
		}
		return nil
	}
	for i, c := range o.calls {
		c.sent.times += o.sent.times
		var reply any
		if i < len(replies) {
			reply = replies[i]
		}
		switch reply.(type) {
		case nil, error:
			c.sent.times-- // this one did nothing
			instead = append(instead, &order{calls: []*waitingCall{c}})
		default:
			c.finish(reply, nil)
		}
	}
	return instead
}
