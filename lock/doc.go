// Package lock is the distributed lock: a [Locker] that owns all policy (waiting,
// renewal, deadlines, reentrancy, release) over a [Backend] that owns none.
//
// A lock alone keeps contenders from working at the same time as long as nothing
// goes wrong. What makes it safe when something does are the guards given to the
// locker: every acquisition raises its fence on all of them before Acquire
// returns, and the lease's context carries the fence to the guarded writes.
//
//	locker, err := lock.New(backend, lock.WithGuards(pg))
//	err = locker.Do(ctx, "inventory:sku-42", func(ctx context.Context) error {
//		return pg.InTx(ctx, func(tx pgx.Tx) error { … })
//	})
package lock
