package grpcfence

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/go-fencing/fencing/guard/fencewire"
)

var key = strings.ToLower(fencewire.Header)

// UnaryClientInterceptor returns an interceptor that sends the fences of the call's
// context, signed by s. Without fences it adds nothing. A call that has the metadata
// already, or whose fences cannot be signed, is not made: codes.InvalidArgument. It
// panics if s is nil.
func UnaryClientInterceptor(s *fencewire.Signer) grpc.UnaryClientInterceptor {
	need(s != nil, "signer")
	return func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, err := outgoing(ctx, s)
		if err != nil {
			return err
		}
		return invoke(ctx, method, request, reply, cc, opts...)
	}
}

// StreamClientInterceptor is [UnaryClientInterceptor] for streams, which send the
// fences as they are opened.
func StreamClientInterceptor(s *fencewire.Signer) grpc.StreamClientInterceptor {
	need(s != nil, "signer")
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, err := outgoing(ctx, s)
		if err != nil {
			return nil, err
		}
		return open(ctx, desc, cc, method, opts...)
	}
}

func outgoing(ctx context.Context, s *fencewire.Signer) (context.Context, error) {
	if md, _ := metadata.FromOutgoingContext(ctx); len(md[key]) > 0 {
		return nil, &refusal{codes.InvalidArgument, fmt.Errorf("grpcfence: the call has %s metadata already; the interceptor sets it, from the context", key), ""}
	}
	values, err := s.Sign(ctx)
	if err != nil {
		return nil, &refusal{codes.InvalidArgument, fmt.Errorf("grpcfence: call not made: %w", err), ""}
	}
	if len(values) == 0 {
		return ctx, nil
	}
	pairs := make([]string, 0, 2*len(values))
	for _, value := range values {
		pairs = append(pairs, key, value)
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...), nil
}

func need(given bool, what string) {
	if !given {
		panic("grpcfence: the " + what + " is nil")
	}
}
