// Package guardtest is the conformance suite of a guard: the situations in which
// a holder of a lock that is gone must not write, played against a real store.
// Every guard of this project runs it, and so can the guard of another store.
//
// The author of a guard puts a table of keys and values next to the fences,
// writes the few methods of [Store] and [Tx] over it, and calls [Run]:
//
//	type store struct{ *myguard.Guard } // has Raise
//
//	func (s store) Update(ctx context.Context, fn func(context.Context, guardtest.Tx) error) error {
//		return s.InTx(ctx, func(tx *sql.Tx) error { return fn(ctx, table{tx}) }) // table: Get, Put, Delete
//	}
//
//	func TestConformance(t *testing.T) {
//		guardtest.Run(t, func(t *testing.T) guardtest.Store { return store{open(t)} })
//	}
//
// The checks ask what a guard does and not how. Where a newer holder meets a
// transaction that has begun already, a guard may make the raise wait for its end,
// refuse the raise with [guard.ErrBlocked], or let it through and refuse the
// transaction's commit; what no guard may do is let both succeed in the wrong
// order. Numbers such as S3 in the names of checks are those of the project's
// list of situations.
package guardtest
