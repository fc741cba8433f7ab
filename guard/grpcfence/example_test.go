package grpcfence_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/guard/grpcfence"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// What both services get from their configuration.
func sharedKey() fencewire.Key {
	secret := make([]byte, fencewire.MinSecret)
	_, _ = rand.Read(secret) // never fails
	return must(fencewire.NewKey("2026-03", secret))
}

// An inventory sells under the fence of whoever calls. What it answers to one that
// is stale is its own choice.
type inventory struct {
	testpb.UnimplementedTestServiceServer
	store *guard.Memory // a *pgguard.Guard, in a service with a database
	stock int
}

func (s *inventory) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	err := s.store.Write(ctx, "inventory:sku-42", func() error { s.stock -= 10; return nil }) // s.store.InTx(ctx, …)
	if errors.Is(err, guard.ErrStale) || errors.Is(err, guard.ErrNoFence) {
		err = status.Error(codes.FailedPrecondition, err.Error())
	}
	return &testpb.SimpleResponse{}, err
}

// Service A locks and calls service B, whose store refuses the late call of a holder
// that was paused.
func Example() {
	key := sharedKey()

	// Service B.
	b := &inventory{store: guard.NewMemory(), stock: 100}
	verifier := must(fencewire.NewVerifier("inventory", []fencewire.Key{key}, fencewire.WithGuards(b.store)))
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcfence.UnaryServerInterceptor(verifier)),
		grpc.ChainStreamInterceptor(grpcfence.StreamServerInterceptor(verifier)))
	testpb.RegisterTestServiceServer(server, b)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	// Service A.
	signer := must(fencewire.NewSigner("inventory", key))
	conn := must(grpc.NewClient(listener.Addr().String(),
		grpc.WithChainUnaryInterceptor(grpcfence.UnaryClientInterceptor(signer)),
		grpc.WithChainStreamInterceptor(grpcfence.StreamClientInterceptor(signer)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))) // TLS, outside of an example
	defer func() { _ = conn.Close() }()
	client := testpb.NewTestServiceClient(conn)
	call := func(ctx context.Context) {
		_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{})
		fmt.Println(status.Code(err))
	}
	ctx := context.Background()
	locker := must(lock.New(memlock.New()))
	defer func() { _ = locker.Close() }()

	paused := must(locker.Acquire(ctx, "inventory:sku-42"))
	call(paused.Context())
	late := context.WithoutCancel(paused.Context()) // a paused process does not see its lease end
	_ = paused.Release(ctx)

	_ = locker.Do(ctx, "inventory:sku-42", func(ctx context.Context) error { call(ctx); return nil })
	call(late)
	call(ctx)
	fmt.Println("stock:", b.stock)
	// Output:
	// OK
	// OK
	// FailedPrecondition
	// FailedPrecondition
	// stock: 80
}

// What a caller is told is up to an interceptor in front: it finds the error itself,
// and not only its status.
func ExampleUnaryServerInterceptor() {
	verifier := must(fencewire.NewVerifier("inventory", []fencewire.Key{sharedKey()}))
	own := func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		reply, err := handle(ctx, request)
		if errors.Is(err, guard.ErrStale) {
			err = status.Error(codes.Aborted, "sold by somebody else meanwhile")
		}
		return reply, err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(own, grpcfence.UnaryServerInterceptor(verifier)))
	server.Stop()
}

// One connection, one service, one signer.
func ExampleUnaryClientInterceptor() {
	key := sharedKey()
	for _, service := range []string{"inventory", "billing"} {
		signer := must(fencewire.NewSigner(service, key))
		conn := must(grpc.NewClient("dns:///"+service+".internal:8443",
			grpc.WithChainUnaryInterceptor(grpcfence.UnaryClientInterceptor(signer)),
			grpc.WithTransportCredentials(insecure.NewCredentials()))) // TLS, outside of an example
		_ = conn.Close()
	}
}

// Streams have interceptors of their own. A stream keeps the fences that it was
// opened with.
func ExampleStreamClientInterceptor() {
	signer := must(fencewire.NewSigner("inventory", sharedKey()))
	conn := must(grpc.NewClient("dns:///inventory.internal:8443",
		grpc.WithChainStreamInterceptor(grpcfence.StreamClientInterceptor(signer)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))) // TLS, outside of an example
	_ = conn.Close()
}

func ExampleStreamServerInterceptor() {
	verifier := must(fencewire.NewVerifier("inventory", []fencewire.Key{sharedKey()}))
	server := grpc.NewServer(grpc.ChainStreamInterceptor(grpcfence.StreamServerInterceptor(verifier)))
	server.Stop()
}
