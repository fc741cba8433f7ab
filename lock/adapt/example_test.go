package adapt_test

import (
	"context"
	"fmt"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/adapt"
	"github.com/go-fencing/fencing/sequencer"
)

// The peer of this example is in memory; the package's documentation has redsync in
// its place, and sequencer/pgseq or sequencer/redisseq are sequencers that processes
// share.
func ExampleNew() {
	peer, store := newPeer(), guard.NewMemory()
	backend, err := adapt.New(peer.mutex, adapt.WithRefused(refused))
	if err != nil {
		fmt.Println(err)
		return
	}
	tokens, _ := sequencer.NewMemory()
	locker, err := lock.New(backend, lock.WithSequencer(tokens), lock.WithGuards(store))
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx := context.Background()
	for range 2 {
		err = locker.Do(ctx, "inventory:sku-42", func(ctx context.Context) error {
			f, _ := guard.FromContext(ctx, "inventory:sku-42")
			return store.Write(ctx, f.Resource, func() error {
				fmt.Println("written under token", f.Token)
				return nil
			})
		})
	}
	fmt.Println(err, locker.Close())
	// Output:
	// written under token 1
	// written under token 2
	// <nil> <nil>
}
