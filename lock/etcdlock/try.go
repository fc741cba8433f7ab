package etcdlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	tries      = 6
	tryTimeout = 3 * time.Second        // at most; a third of what the context leaves if that is less
	tryPause   = 100 * time.Millisecond // before the next one, while the members elect a leader
)

// try repeats a call that its member leaves without an answer. The client's balancer
// sends each to the next member, and does not notice one that hangs for many
// seconds: the first call would take all of a renewal's time. Every call of this
// package may be carried out twice.
func try[T any](ctx context.Context, call func(context.Context) (T, error)) (reply T, err error) {
	for range tries {
		limit := tryTimeout
		if end, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(end)/3)
		}
		tryCtx, cancel := context.WithTimeout(ctx, limit)
		reply, err = call(tryCtx)
		late := tryCtx.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil || !late && !unavailable(err) {
			return reply, err
		}
		select {
		case <-time.After(tryPause):
		case <-ctx.Done():
			return reply, err
		}
	}
	return reply, err
}

func unavailable(err error) bool {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code() == codes.Unavailable
	}
	return status.Code(err) == codes.Unavailable
}
