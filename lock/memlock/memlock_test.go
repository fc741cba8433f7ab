package memlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/memlock"
)

func TestBackend(t *testing.T) {
	t.Parallel()
	locktest.Run(t, func(*testing.T) lock.Backend { return memlock.New() })
}

// Nobody may ever ask for their resources again.
func TestExpiredLocksAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		kept := lock.Request{Resource: "kept", Nonce: "n", TTL: time.Hour}
		_, err := b.Acquire(t.Context(), kept)
		require.NoError(t, err)
		for i := range 10000 {
			r := lock.Request{Resource: fmt.Sprint("order:", i), Nonce: "holder", TTL: time.Second}
			_, err := b.Acquire(t.Context(), r)
			require.NoError(t, err)
			r.Nonce = "waiter"
			_, err = b.AcquireInTurn(t.Context(), r, time.Second)
			require.ErrorIs(t, err, lock.ErrHeld)
			time.Sleep(100 * time.Millisecond)
		}
		locks, queues := memlock.Resources(b)
		require.Less(t, locks, 100)
		require.Less(t, queues, 100)
		require.NoError(t, b.Renew(t.Context(), kept))
	})
}
