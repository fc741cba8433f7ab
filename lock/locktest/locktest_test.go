package locktest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheFakeConforms(t *testing.T) {
	t.Parallel()
	locktest.Run(t, func(*testing.T) lock.Backend { return locktest.NewFake() })
}

// The checks must not ask for one way of being right.
func TestAnotherRightBackEndConforms(t *testing.T) {
	t.Parallel()
	locktest.Run(t, func(*testing.T) lock.Backend { return newLab(flaw{}) })
}

func TestChecksMayShareABackEnd(t *testing.T) {
	t.Parallel()
	shared := locktest.NewFake()
	for range 2 {
		locktest.Run(t, func(*testing.T) lock.Backend { return shared })
	}
}

func TestExpireFreesASharedLock(t *testing.T) {
	t.Parallel()
	f := locktest.NewFake()
	r := lock.Request{Resource: "inventory:sku-42", Nonce: "n", TTL: time.Minute}
	_, err := f.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, f.Join(t.Context(), r, "second"))
	f.Expire(r.Resource)
	require.ErrorIs(t, f.Renew(t.Context(), r), lock.ErrLost)
	h, err := f.Inspect(t.Context(), r.Resource)
	require.NoError(t, err)
	require.Zero(t, h.Members)
}
