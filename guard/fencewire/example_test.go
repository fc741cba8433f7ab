package fencewire_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
)

// What services get from their configuration: a secret that they share, by its id.
func sharedKey(id string) fencewire.Key {
	secret := make([]byte, fencewire.MinSecret)
	_, _ = rand.Read(secret) // never fails
	key, err := fencewire.NewKey(id, secret)
	if err != nil {
		panic(err)
	}
	return key
}

// A message in a queue carries the fence under which it was sent, and the service
// that works on it has it checked by its own store. Messages that wait for longer
// than a minute need a verifier WithMaxAge.
func Example() {
	key := sharedKey("2026-03")
	signer, err := fencewire.NewSigner("inventory", key)
	if err != nil {
		fmt.Println(err)
		return
	}
	store := guard.NewMemory() // a pgguard.Guard, in a service with a database
	verifier, err := fencewire.NewVerifier("inventory", []fencewire.Key{key}, fencewire.WithGuards(store))
	if err != nil {
		fmt.Println(err)
		return
	}

	send := func(f guard.Fence) (header []string) {
		values, err := signer.Sign(guard.NewContext(context.Background(), f)) // the context of a lease
		if err != nil {
			fmt.Println(err)
		}
		return values
	}
	receive := func(header []string) {
		ctx, err := verifier.Verify(context.Background(), header)
		if err == nil {
			err = store.Write(ctx, "inventory:sku-42", func() error { fmt.Println("written"); return nil })
		}
		if errors.Is(err, guard.ErrStale) {
			fmt.Println("stale, nothing was written")
		}
	}
	late := send(guard.Fence{Resource: "inventory:sku-42", Token: 33, Nonce: "5f0c", Holder: "worker-a"})
	receive(send(guard.Fence{Resource: "inventory:sku-42", Token: 34, Nonce: "9e1d", Holder: "worker-b"}))
	receive(late)
	// Output:
	// written
	// stale, nothing was written
}

func ExampleNewKey() {
	_, err := fencewire.NewKey("2026-03", []byte("correct horse"))
	fmt.Println(err)
	// Output:
	// fencewire: the secret of key "2026-03" has 13 bytes; it needs 32 random ones or more
}

// While keys are rotated, a verifier takes the old and the new one.
func ExampleNewVerifier() {
	spring, autumn := sharedKey("2026-03"), sharedKey("2026-09")
	verifier, err := fencewire.NewVerifier("inventory", []fencewire.Key{spring, autumn})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := guard.NewContext(context.Background(), guard.Fence{Resource: "inventory:sku-42", Token: 33, Nonce: "5f0c"})
	for _, key := range []fencewire.Key{spring, autumn, sharedKey("2025-09")} {
		signer, err := fencewire.NewSigner("inventory", key)
		if err != nil {
			fmt.Println(err)
			return
		}
		values, err := signer.Sign(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, err = verifier.Verify(context.Background(), values)
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// fencewire: value 1: this service does not have the key "2025-09": unverified fence
}

// A value is text for a header: the fence as it is, with the id of the key and the
// time in front of it, and the MAC behind it.
func ExampleSigner_Sign() {
	signer, err := fencewire.NewSigner("inventory", sharedKey("2026-03"))
	if err != nil {
		fmt.Println(err)
		return
	}
	values, err := signer.Sign(guard.NewContext(context.Background(), guard.Fence{Resource: "inventory:sku 42", Token: 33, Nonce: "5f0c", Holder: "worker-a"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	parts := strings.Split(values[0], ";")
	fmt.Println(fencewire.Header+":", parts[0], parts[1], parts[3:7])
	// Output:
	// Fencing-Fence: 1 2026-03 [inventory:sku%2042 33 5f0c worker-a]
}
