package grpcfence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/guard/grpcfence"
	"github.com/go-fencing/fencing/internal/wiretest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

const key = "fencing-fence"

type call = func(context.Context, testpb.TestServiceClient) error

func TestFencesArriveInTheHandlersContext(t *testing.T) {
	eachWay(t, func(t *testing.T, call call) {
		got := make(chan context.Context, 1)
		c := fenced(t, serve(t, wiretest.Verifier(t, "inventory"), func(ctx context.Context) error { got <- ctx; return nil }))

		ctx := metadata.AppendToOutgoingContext(under(t, held, order), "x-other", "kept", "x-other", "twice")
		require.NoError(t, call(ctx, c))
		handler := <-got
		require.Equal(t, []guard.Fence{held, order}, guard.Fences(handler))
		require.Empty(t, incoming(handler, key), "verified once, the value is for nobody else")
		require.Equal(t, []string{"kept", "twice"}, incoming(handler, "x-other"))
		sent, _ := metadata.FromOutgoingContext(ctx)
		require.Empty(t, sent.Get(key), "the caller's context can be used again")

		require.NoError(t, call(under(t), c), "a call under no lock passes")
		require.Empty(t, guard.Fences(<-got))
	})
}

// Some gRPC servers bound all headers of a call together by so much.
func TestAsManyFencesAsCanBeSignedArrive(t *testing.T) {
	t.Parallel()
	c := fenced(t, serve(t, wiretest.Verifier(t, "inventory"), func(ctx context.Context) error {
		if n := len(guard.Fences(ctx)); n != fencewire.MaxFences {
			return fmt.Errorf("%d fences", n)
		}
		return nil
	}, grpc.MaxHeaderListSize(8<<10)))
	var fences []guard.Fence
	for n := range fencewire.MaxFences {
		fences = append(fences, guard.Fence{Resource: fmt.Sprintf("r%02d:%s", n, strings.Repeat("r", 300)), Token: 1, Nonce: "n"})
	}
	s := wiretest.Signer(t, "inventory", wiretest.Shared)
	for {
		more := slices.Clone(fences)
		for i := range more {
			more[i].Resource += "r"
		}
		if _, err := s.Sign(guard.NewContext(t.Context(), more...)); err != nil {
			break
		}
		fences = more
	}
	require.NoError(t, ways["unary"](under(t, fences...), c))
}

func TestABadValueIsInvalidArgumentAndTheHandlerDoesNotRun(t *testing.T) {
	eachWay(t, func(t *testing.T, call call) {
		store := guard.NewMemory()
		c := dial(t, serve(t, wiretest.Verifier(t, "inventory", fencewire.WithGuards(store)), func(context.Context) error {
			t.Error("the handler ran")
			return nil
		}))
		good := wiretest.Values(t, wiretest.Signer(t, "inventory", wiretest.Shared), held)
		for name, bad := range wiretest.Bad(t, held, order) {
			ctx := under(t)
			for _, value := range bad {
				ctx = metadata.AppendToOutgoingContext(ctx, key, value)
			}
			err := call(ctx, c)
			require.Equal(t, codes.InvalidArgument, status.Code(err), "%s: %v", name, err)
			require.ErrorContains(t, err, "unverified fence", name)
			require.NotContains(t, err.Error(), held.Nonce, name)
			require.NotContains(t, err.Error(), good[0][strings.LastIndexByte(good[0], ';')+1:], name)
			require.NotContains(t, err.Error(), "secret-of-thirty-two", name)
		}
		first := held
		first.Token = 1
		require.NoError(t, store.Raise(t.Context(), first), "nothing was raised")
	})
}

func TestValuesJoinedByAGatewayArrive(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, wiretest.Verifier(t, "inventory"), func(ctx context.Context) error {
		if n := len(guard.Fences(ctx)); n != 2 {
			return fmt.Errorf("%d fences", n)
		}
		return nil
	}))
	joined := strings.Join(wiretest.Values(t, wiretest.Signer(t, "inventory", wiretest.Shared), held, order), ", ")
	require.NoError(t, ways["unary"](metadata.AppendToOutgoingContext(under(t), key, joined), c))
}

func TestWhatCannotBeSignedIsNotSent(t *testing.T) {
	eachWay(t, func(t *testing.T, call call) {
		c := fenced(t, serve(t, wiretest.Verifier(t, "inventory"), func(context.Context) error {
			t.Error("the handler ran")
			return nil
		}))
		for want, ctx := range map[string]context.Context{
			"has fencing-fence metadata already":        metadata.AppendToOutgoingContext(under(t, held), "Fencing-Fence", "a value of somebody"),
			"the call has fencing-fence metadata":       metadata.AppendToOutgoingContext(under(t), key, "a value of somebody"),
			"call not made: guard: fence of \"r\": tok": under(t, guard.Fence{Resource: "r"}),
		} {
			err := call(ctx, c)
			require.Equal(t, codes.InvalidArgument, status.Code(err))
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "a value of somebody")
		}
		err := call(under(t, guard.Fence{Resource: "r"}), c)
		require.ErrorIs(t, err, guard.ErrInvalid)
	})
}

func TestAFenceThatIsNotRaisedIsRefused(t *testing.T) {
	eachWay(t, func(t *testing.T, call call) {
		for _, c := range []struct {
			err  error
			code codes.Code
			told string
		}{
			{&guard.StaleError{Held: held, Current: guard.Fence{Token: 34, Holder: "worker-b"}}, codes.FailedPrecondition, "superseded by token 34 of worker-b"},
			{guard.ErrBlocked, codes.Unavailable, "could not be raised"},
			{errors.New("dial db-7.internal"), codes.Unavailable, "could not be raised"},
			{fmt.Errorf("raise: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "could not be raised"},
			{fmt.Errorf("raise: %w", context.Canceled), codes.Canceled, "could not be raised"},
		} {
			seen := make(chan error, 1) // by an interceptor of the service's own
			address := serve(t, wiretest.Verifier(t, "inventory", fencewire.WithGuards(wiretest.BrokenStore{Err: c.err})), func(context.Context) error {
				t.Error("the handler ran")
				return nil
			}, grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
				reply, err := handle(ctx, request)
				seen <- err
				return reply, err
			}), grpc.ChainStreamInterceptor(func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
				err := handle(service, stream)
				seen <- err
				return err
			}))
			err := call(under(t, held), fenced(t, address))
			require.Equal(t, c.code, status.Code(err), "%v", err)
			require.ErrorContains(t, err, c.told)
			require.NotContains(t, err.Error(), "db-7")
			require.ErrorIs(t, <-seen, c.err)
		}
	})
}

// The holder of a lock in service A is paused while another one works; its late call
// is refused by the store of B, whichever way it is made.
func TestS45_TheOtherServicesStoreRefusesTheStaleHolder(t *testing.T) {
	eachWay(t, func(t *testing.T, call call) {
		store := guard.NewMemory()
		written := 0
		c := fenced(t, serve(t, wiretest.Verifier(t, "inventory", fencewire.WithGuards(store)), func(ctx context.Context) error {
			return asStatus(store.Write(ctx, held.Resource, func() error { written++; return nil }))
		}))
		backend := memlock.New()
		short, long := locker(t, backend, 50*time.Millisecond), locker(t, backend, time.Minute)

		paused, err := short.Acquire(under(t), held.Resource)
		require.NoError(t, err)
		late := context.WithoutCancel(paused.Context()) // a paused process does not see its lease end
		newer, err := long.Acquire(under(t), held.Resource)
		require.NoError(t, err)
		require.NoError(t, call(newer.Context(), c))

		err = call(late, c)
		require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "superseded by token 2")
		require.Equal(t, codes.PermissionDenied, status.Code(call(under(t), c)), "nor does it write under no lock")
		require.NoError(t, newer.Release(under(t)))
		require.Equal(t, 1, written)
	})
}

// A stream that was opened in time is refused at its next write.
func TestAStreamIsRefusedInTheMiddle(t *testing.T) {
	t.Parallel()
	store := guard.NewMemory()
	c := fenced(t, serve(t, wiretest.Verifier(t, "inventory", fencewire.WithGuards(store)), func(ctx context.Context) error {
		return asStatus(store.Write(ctx, held.Resource, func() error { return nil }))
	}))
	stream, err := c.FullDuplexCall(under(t, held))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
	_, err = stream.Recv()
	require.NoError(t, err)

	later := held
	later.Token, later.Nonce = 34, "another"
	require.NoError(t, ways["unary"](under(t, later), c))
	require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
	_, err = stream.Recv()
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
}

// From A through B to C: each hop verifies, and signs anew for the next.
func TestHopToHop(t *testing.T) {
	t.Parallel()
	got := make(chan []guard.Fence, 1)
	stock := serve(t, wiretest.Verifier(t, "stock"), func(ctx context.Context) error { got <- guard.Fences(ctx); return nil })
	toStock := dial(t, stock, grpc.WithUnaryInterceptor(grpcfence.UnaryClientInterceptor(wiretest.Signer(t, "stock", wiretest.Shared))))
	inventory := serve(t, wiretest.Verifier(t, "inventory"), func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx) // passed on, as proxies do
		_, err := toStock.UnaryCall(metadata.NewOutgoingContext(ctx, md), &testpb.SimpleRequest{})
		return err
	})
	require.NoError(t, ways["unary"](under(t, held), fenced(t, inventory)))
	require.Equal(t, []guard.Fence{held}, <-got)
}

func TestConstructorsPanicWithoutTheirPart(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { grpcfence.UnaryClientInterceptor(nil) })
	require.Panics(t, func() { grpcfence.StreamClientInterceptor(nil) })
	require.Panics(t, func() { grpcfence.UnaryServerInterceptor(nil) })
	require.Panics(t, func() { grpcfence.StreamServerInterceptor(nil) })
}

func locker(t *testing.T, b lock.Backend, ttl time.Duration) *lock.Locker {
	t.Helper()
	l, err := lock.New(b, lock.WithTTL(ttl), lock.WithoutRenewal(), lock.WithRetryWait(5*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// asStatus is the choice of the service in this test.
func asStatus(err error) error {
	switch {
	case errors.Is(err, guard.ErrStale):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, guard.ErrNoFence):
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return err
}
