package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// The lock, the fence and the guarded write together: what a service does around
// its critical section.
func Example() {
	store := guard.NewMemory() // in a service: pgguard, gormguard or sqlguard
	locker, err := lock.New(memlock.New(), lock.WithGuards(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locker.Close() }()

	stock := 10
	err = locker.Do(context.Background(), "inventory:sku-42", func(ctx context.Context) error {
		return store.Write(ctx, "inventory:sku-42", func() error {
			stock--
			return nil
		})
	})
	fmt.Println(stock, err)
	// Output: 9 <nil>
}

func ExampleLocker_Acquire() {
	locker, _ := lock.New(memlock.New(), lock.WithTTL(10*time.Second))
	defer func() { _ = locker.Close() }()

	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // bounds the wait
	defer cancel()
	lease, err := locker.Acquire(ctx, "inventory:sku-42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lease.Release(ctx) }() // works after ctx has ended, too

	fmt.Println("token", lease.Fence().Token)
	// Output: token 1
}

func ExampleLocker_TryAcquire() {
	backend := memlock.New()
	web1, _ := lock.New(backend, lock.WithHolder("web-1"))
	web2, _ := lock.New(backend, lock.WithHolder("web-2"))
	lease, _ := web1.TryAcquire(context.Background(), "inventory:sku-42")
	defer func() { _ = lease.Release(context.Background()) }()

	_, err := web2.TryAcquire(context.Background(), "inventory:sku-42")
	if held, ok := errors.AsType[*lock.HeldError](err); ok {
		fmt.Println("held by", held.Holder)
	}
	// Output: held by web-1
}

func ExampleLocker_AcquireAll() {
	locker, _ := lock.New(memlock.New())
	lease, err := locker.AcquireAll(context.Background(), "account:bob", "account:alice")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lease.Release(context.Background()) }()
	for _, f := range guard.Fences(lease.Context()) {
		fmt.Println(f.Resource)
	}
	// Output:
	// account:alice
	// account:bob
}

// Do tells work that failed from work that outlived its lease.
func ExampleLocker_Do() {
	locker, _ := lock.New(memlock.New(), lock.WithTTL(50*time.Millisecond), lock.WithoutRenewal())
	defer func() { _ = locker.Close() }()

	ctx := context.Background()
	err := locker.Do(ctx, "report:daily", func(ctx context.Context) error {
		f, _ := guard.FromContext(ctx, "report:daily")
		fmt.Println("under token", f.Token)
		return nil
	})
	fmt.Println(err)

	err = locker.Do(ctx, "report:daily", func(ctx context.Context) error {
		<-ctx.Done() // too slow, and nobody renews the lease
		return nil
	})
	fmt.Println("lost:", errors.Is(err, lock.ErrLost))
	// Output:
	// under token 1
	// <nil>
	// lost: true
}

// A request that waits a moment for the lock, and then works as long as it has to.
func ExampleWithMaxWait() {
	backend := memlock.New()
	busy, _ := lock.New(backend)
	locker, _ := lock.New(backend, lock.WithMaxWait(20*time.Millisecond))
	ctx := context.Background()
	lease, _ := busy.Acquire(ctx, "inventory:sku-42")
	work := func(ctx context.Context) error {
		time.Sleep(100 * time.Millisecond)
		return ctx.Err()
	}

	err := locker.Do(ctx, "inventory:sku-42", work)
	fmt.Println("held:", errors.Is(err, lock.ErrHeld))
	_ = lease.Release(ctx)
	fmt.Println(locker.Do(ctx, "inventory:sku-42", work))
	// Output:
	// held: true
	// <nil>
}

// At the end of a program: nobody has to wait for the TTL of what it still held.
func ExampleLocker_Close() {
	backend := memlock.New()
	web1, _ := lock.New(backend)
	web2, _ := lock.New(backend)
	ctx := context.Background()
	lease, _ := web1.Acquire(ctx, "inventory:sku-42")

	fmt.Println(web1.Close())
	fmt.Println("released:", errors.Is(context.Cause(lease.Context()), lock.ErrReleased))
	_, err := web2.TryAcquire(ctx, "inventory:sku-42")
	fmt.Println(err)
	_, err = web1.TryAcquire(ctx, "inventory:sku-42")
	fmt.Println("closed:", errors.Is(err, lock.ErrClosed))
	// Output:
	// <nil>
	// released: true
	// <nil>
	// closed: true
}

// Release works on a context that has ended, and says whether the lease lasted
// until then.
func ExampleLease_Release() {
	locker, _ := lock.New(memlock.New())
	defer func() { _ = locker.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lease, err := locker.Acquire(ctx, "inventory:sku-42")
	if err != nil {
		fmt.Println(err)
		return
	}
	cancel() // the client of the request has gone

	switch err := lease.Release(ctx); {
	case err == nil:
		fmt.Println("the lock was ours all along, and is free")
	case errors.Is(err, lock.ErrLost):
		fmt.Println("another may have had the lock meanwhile:", err)
	case errors.Is(err, lock.ErrUnknown):
		fmt.Println("it frees itself with its TTL:", err)
	}
	fmt.Println("twice:", errors.Is(lease.Release(ctx), lock.ErrReleased))
	// Output:
	// the lock was ours all along, and is free
	// twice: true
}

// Work that calls itself, or a helper that takes the same lock: the context tells
// the locker that it has it already.
func ExampleLocker_Acquire_reentrant() {
	locker, _ := lock.New(memlock.New())
	ctx := context.Background()
	err := locker.Do(ctx, "inventory:sku-42", func(ctx context.Context) error {
		outer, _ := guard.FromContext(ctx, "inventory:sku-42")
		return locker.Do(ctx, "inventory:sku-42", func(ctx context.Context) error {
			inner, _ := guard.FromContext(ctx, "inventory:sku-42")
			fmt.Println("same fence:", inner == outer)
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// same fence: true
	// <nil>
}

// The fence travels to another process as text, which joins the lock under it.
func ExampleLocker_Join() {
	backend := memlock.New() // one Redis, in a service
	orders, _ := lock.New(backend)
	lease, _ := orders.Acquire(context.Background(), "order:7")
	message, _ := lease.Fence().MarshalText()

	var fence guard.Fence
	if err := fence.UnmarshalText(message); err != nil {
		fmt.Println(err)
		return
	}
	billing, _ := lock.New(backend)
	joined, err := billing.Join(context.Background(), fence)
	fmt.Println(joined.Fence().Token == lease.Fence().Token, err)

	_ = lease.Release(context.Background())
	_, err = orders.TryAcquire(context.Background(), "order:7")
	fmt.Println("still held:", errors.Is(err, lock.ErrHeld))
	_ = joined.Release(context.Background())
	// Output:
	// true <nil>
	// still held: true
}

func ExampleLease_Lost() {
	locker, _ := lock.New(memlock.New(), lock.WithTTL(50*time.Millisecond), lock.WithoutRenewal())
	lease, _ := locker.Acquire(context.Background(), "inventory:sku-42")
	<-lease.Lost() // nobody renews it
	fmt.Println(errors.Is(context.Cause(lease.Context()), lock.ErrLost))
	// Output: true
}
