package grpcfence_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/guard/grpcfence"
	"github.com/go-fencing/fencing/internal/wiretest"
)

var (
	held  = guard.Fence{Resource: "inventory:sku-42", Token: 33, Nonce: "nonce-of-a", Holder: "worker-a"}
	order = guard.Fence{Resource: "заказ:7, \"gold\"", Token: 9, Nonce: "nonce-of-a2", Holder: "worker-a"}
)

// service does work for every call and every message of a stream.
type service struct {
	testpb.UnimplementedTestServiceServer
	work func(ctx context.Context) error
}

func (s *service) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{}, s.work(ctx)
}

func (s *service) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.work(stream.Context()); err != nil {
			return err
		}
		if err := stream.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

func (s *service) StreamingInputCall(stream testpb.TestService_StreamingInputCallServer) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return stream.SendAndClose(&testpb.StreamingInputCallResponse{})
		} else if err != nil {
			return err
		}
		if err := s.work(stream.Context()); err != nil {
			return err
		}
	}
}

func (s *service) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, stream testpb.TestService_StreamingOutputCallServer) error {
	if err := s.work(stream.Context()); err != nil {
		return err
	}
	return stream.Send(&testpb.StreamingOutputCallResponse{})
}

// serve runs a service on the loopback behind the interceptors of v and returns its
// address.
func serve(t testing.TB, v *fencewire.Verifier, work func(ctx context.Context) error, opts ...grpc.ServerOption) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(append(opts, grpc.ChainUnaryInterceptor(grpcfence.UnaryServerInterceptor(v)), grpc.ChainStreamInterceptor(grpcfence.StreamServerInterceptor(v)))...)
	testpb.RegisterTestServiceServer(server, &service{work: work})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return listener.Addr().String()
}

func dial(t testing.TB, address string, opts ...grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+address, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cc.Close()) })
	return testpb.NewTestServiceClient(cc)
}

// fenced returns a client whose calls carry fences for the audience "inventory".
func fenced(t testing.TB, address string) testpb.TestServiceClient {
	t.Helper()
	s := wiretest.Signer(t, "inventory", wiretest.Shared)
	return dial(t, address, grpc.WithUnaryInterceptor(grpcfence.UnaryClientInterceptor(s)), grpc.WithStreamInterceptor(grpcfence.StreamClientInterceptor(s)))
}

// under returns a context with fences that ends before the test's patience does.
func under(t testing.TB, fences ...guard.Fence) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return guard.NewContext(ctx, fences...)
}

// ways are the ways to call a service: each sends one message and returns the error.
var ways = map[string]func(context.Context, testpb.TestServiceClient) error{
	"unary": func(ctx context.Context, c testpb.TestServiceClient) error {
		_, err := c.UnaryCall(ctx, &testpb.SimpleRequest{})
		return err
	},
	"client stream": func(ctx context.Context, c testpb.TestServiceClient) error {
		s, err := c.StreamingInputCall(ctx)
		if err != nil {
			return err
		}
		if err := s.Send(&testpb.StreamingInputCallRequest{}); err != nil && !errors.Is(err, io.EOF) { // EOF: the reply says why
			return err
		}
		_, err = s.CloseAndRecv()
		return err
	},
	"server stream": func(ctx context.Context, c testpb.TestServiceClient) error {
		s, err := c.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
		if err != nil {
			return err
		}
		_, err = s.Recv()
		return err
	},
	"both ways": func(ctx context.Context, c testpb.TestServiceClient) error {
		s, err := c.FullDuplexCall(ctx)
		if err != nil {
			return err
		}
		if err := s.Send(&testpb.StreamingOutputCallRequest{}); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		_, err = s.Recv()
		return err
	},
}

func eachWay(t *testing.T, test func(t *testing.T, call func(context.Context, testpb.TestServiceClient) error)) {
	t.Parallel()
	for name, call := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, call)
		})
	}
}

func incoming(ctx context.Context, key string) []string {
	md, _ := metadata.FromIncomingContext(ctx)
	return md.Get(key)
}
