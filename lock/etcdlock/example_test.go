package etcdlock_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/etcdlock"
)

// The lock in etcd, and what it protects in etcd too: the write of a holder whose
// lock is gone is not carried out. Data in a database takes lock.WithGuards as with
// any other back end.
func Example() {
	ctx := context.Background()
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Getenv("ETCD_ENDPOINTS"), ",")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()
	backend, err := etcdlock.New(client)
	if err != nil {
		fmt.Println(err)
		return
	}
	locker, err := lock.New(backend)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locker.Close() }()
	err = locker.Do(ctx, "config:prices", func(ctx context.Context) error {
		fence, _ := guard.FromContext(ctx, "config:prices")
		reply, err := client.Txn(ctx).If(etcdlock.IsOwner(fence)).Then(clientv3.OpPut("prices", "…")).Commit()
		if err == nil && !reply.Succeeded {
			err = fmt.Errorf("write prices: %w", lock.ErrLost)
		}
		return err
	})
	fmt.Println(err)
}
