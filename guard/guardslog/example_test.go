package guardslog_test

import (
	"context"
	"log"
	"log/slog"
	"os"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/guardslog"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

func ExampleNew() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "took", "error": // they differ from run to run
				return slog.Attr{}
			}
			return a
		},
	}))
	// The store is ahead: Redis has lost its counters, say.
	store := guard.NewMemory()
	ctx := context.Background()
	if err := store.Raise(ctx, guard.Fence{Resource: "inventory:sku-42", Token: 40, Nonce: "5f0c", Holder: "worker-b"}); err != nil {
		log.Fatal(err)
	}

	locker, err := lock.New(memlock.New(), lock.WithGuards(store), lock.WithHolder("worker-a"), lock.WithObserver(guardslog.New(logger)))
	if err != nil {
		log.Fatal(err)
	}
	if err := locker.Do(ctx, "inventory:sku-42", func(context.Context) error { return nil }); err != nil {
		log.Fatal(err)
	}
	// Output:
	// level=WARN msg="fence refused" resource=inventory:sku-42 token=1 holder=worker-a
	// level=WARN msg="fence repaired" resource=inventory:sku-42 token=41 holder=worker-a
}
