package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	tries       = 6                      // of members that do not answer
	tryTimeout  = 3 * time.Second        // for each, at most; a third of what the context leaves if that is less
	tryPause    = 100 * time.Millisecond // before the next one
	tryElection = 3 * time.Second        // how long answers that there is no leader, or no member, are put up with
)

// try repeats a call that its member leaves without an answer. The client's balancer
// sends each to the next member, and does not notice one that hangs for many
// seconds: the first call would take all of a renewal's time. Every call of this
// package may be carried out twice.
func try[T any](ctx context.Context, call func(context.Context) (T, error)) (reply T, err error) {
	for begun, hung := time.Now(), 0; ; {
		limit := tryTimeout
		if end, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(end)/3)
		}
		tryCtx, cancel := context.WithTimeout(ctx, limit)
		reply, err = call(tryCtx)
		late := tryCtx.Err() != nil || timedOut(err)
		cancel()
		switch {
		case err == nil, ctx.Err() != nil:
			return reply, err
		case late:
			if hung++; hung == tries {
				return reply, fmt.Errorf("no member answers: %w: %w", context.DeadlineExceeded, err)
			}
		case !unavailable(err), time.Since(begun) > tryElection:
			return reply, err
		}
		select {
		case <-time.After(tryPause):
		case <-ctx.Done():
			return reply, err
		}
	}
}

// timedOut reports whether the member itself gave up, on the time that the call left
// it; it can be a little faster than the call.
func timedOut(err error) bool {
	s := status.Convert(err)
	return s.Code() == codes.DeadlineExceeded || s.Code() == codes.Unknown && s.Message() == context.DeadlineExceeded.Error()
}

func unavailable(err error) bool {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code() == codes.Unavailable
	}
	return status.Code(err) == codes.Unavailable
}
