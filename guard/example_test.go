package guard_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-fencing/fencing/guard"
)

// A worker pauses, another one takes over, and the first one writes late: the
// guard refuses it, whatever the lock service believed.
func ExampleMemory() {
	ctx := context.Background()
	inventory := guard.NewMemory()
	stock := 100
	sell := func(f guard.Fence, seen int) error {
		return inventory.Write(guard.NewContext(ctx, f), f.Resource, func() error {
			stock = seen - 10
			return nil
		})
	}

	a := guard.Fence{Resource: "inventory:sku-42", Token: 33, Nonce: "5f0c", Holder: "worker-a"}
	_ = inventory.Raise(ctx, a) // before the first read
	seenByA := stock
	// Here worker-a pauses, and its lock expires.

	b := guard.Fence{Resource: "inventory:sku-42", Token: 34, Nonce: "9e1d", Holder: "worker-b"}
	_ = inventory.Raise(ctx, b)
	fmt.Println("worker-b:", sell(b, stock))

	err := sell(a, seenByA)
	fmt.Println("worker-a is stale:", errors.Is(err, guard.ErrStale))
	if stale, ok := errors.AsType[*guard.StaleError](err); ok {
		fmt.Println("superseded by", stale.Current)
	}
	fmt.Println("stock:", stock)
	// Output:
	// worker-b: <nil>
	// worker-a is stale: true
	// superseded by "inventory:sku-42" token 34 of worker-b
	// stock: 90
}

// A fence that came with a request is put into the context, from where the
// guards take it.
func ExampleNewContext() {
	order := guard.Fence{Resource: "order:7", Token: 12, Nonce: "5f0c", Holder: "api-1"}
	account := guard.Fence{Resource: "account:3", Token: 40, Nonce: "9e1d", Holder: "api-1"}
	ctx := guard.NewContext(context.Background(), order, account)

	for _, f := range guard.Fences(ctx) {
		fmt.Println(f)
	}
	f, ok := guard.FromContext(ctx, "order:7")
	fmt.Println(f.Token, ok)
	// Output:
	// "account:3" token 40 of api-1
	// "order:7" token 12 of api-1
	// 12 true
}

// The text form carries a fence to another process, in a header or an
// environment variable.
func ExampleFence_MarshalText() {
	sent := guard.Fence{Resource: "inventory:sku 42", Token: 33, Nonce: "5f0c", Holder: "worker-a"}
	text, err := sent.MarshalText()
	fmt.Println(string(text), err)

	var received guard.Fence
	err = received.UnmarshalText(text)
	fmt.Println(received == sent, err)

	err = received.UnmarshalText([]byte("inventory:sku-42;0;5f0c;worker-a"))
	fmt.Println(errors.Is(err, guard.ErrInvalid))
	// Output:
	// inventory:sku%2042;33;5f0c;worker-a <nil>
	// true <nil>
	// true
}
