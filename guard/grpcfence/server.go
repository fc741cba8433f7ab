package grpcfence

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
)

// UnaryServerInterceptor returns an interceptor that puts the fences of a call into
// the handler's context, raised in v's guards, and takes them off its incoming
// metadata. A call without the metadata passes as it is. It panics if v is nil.
//
// The handler does not run, and the code is
//
//   - InvalidArgument if there is anything wrong with any value;
//   - FailedPrecondition where a guard has seen a later fence. It is not Aborted,
//     which clients are told to retry: a stale fence never gets better;
//   - Canceled or DeadlineExceeded if the call ended first, and Unavailable where the
//     fence could not be raised for another reason, which the caller is not told.
//
// An interceptor in front of this one finds the error with errors.Is:
// [fencewire.ErrUnverified], [guard.ErrStale] and others of the guard.
func UnaryServerInterceptor(v *fencewire.Verifier) grpc.UnaryServerInterceptor {
	need(v != nil, "verifier")
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		ctx, err := incoming(ctx, v)
		if err != nil {
			return nil, err
		}
		return handle(ctx, request)
	}
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams. The fences are
// raised before the handler gets the first message.
func StreamServerInterceptor(v *fencewire.Verifier) grpc.StreamServerInterceptor {
	need(v != nil, "verifier")
	return func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, err := incoming(stream.Context(), v)
		if err != nil {
			return err
		}
		return handle(service, &fencedStream{stream, ctx})
	}
}

type fencedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *fencedStream) Context() context.Context { return s.ctx }

func incoming(ctx context.Context, v *fencewire.Verifier) (context.Context, error) {
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	values, sent := md[key]
	if !sent {
		return ctx, nil
	}
	ctx, err := v.Verify(ctx, values)
	if err != nil {
		return nil, refuse(err)
	}
	delete(md, key)
	return metadata.NewIncomingContext(ctx, md), nil
}

func refuse(err error) error {
	switch {
	case errors.Is(err, fencewire.ErrUnverified):
		return &refusal{code: codes.InvalidArgument, error: err}
	case errors.Is(err, guard.ErrStale):
		return &refusal{code: codes.FailedPrecondition, error: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &refusal{codes.DeadlineExceeded, err, unraised}
	case errors.Is(err, context.Canceled):
		return &refusal{codes.Canceled, err, unraised}
	}
	return &refusal{codes.Unavailable, err, unraised}
}

const unraised = "grpcfence: the fence could not be raised; nothing was written"

// A refusal is the error for this side, and its status for the other one.
type refusal struct {
	code codes.Code
	error
	told string // in place of the error
}

func (r *refusal) GRPCStatus() *status.Status { return status.New(r.code, cmp.Or(r.told, r.Error())) }

func (r *refusal) Unwrap() error { return r.error }
