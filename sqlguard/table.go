package sqlguard

import (
	"context"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// fenceTable keeps the fences in the dialects whose server has no functions for
// them. Its columns: resource, token, nonce, holder, raised_at.
const fenceTable = "fencing_fence"

// readRecord reads the fence of a resource by a statement that selects the last
// four of the columns.
func readRecord(ctx context.Context, tx session, resource, query string, args ...any) (record guard.Record, err error) {
	var since int64
	f := &record.Fence
	found, err := tx.row(ctx, query, args, (*int64)(&f.Token), &f.Nonce, &f.Holder, &since)
	if err != nil || !found {
		return guard.Record{}, err
	}
	f.Resource = resource
	record.Since = time.UnixMicro(since)
	return record, nil
}

// compare enters held by reading each of them, which keeps it as it is until the
// transaction ends.
func compare(held []guard.Fence, read func(f guard.Fence) (guard.Record, error)) error {
	for _, f := range inOrder(held) {
		current, err := read(f)
		if err != nil {
			return err
		}
		if err := current.Enter(f); err != nil {
			return &refusal{meaning: err}
		}
	}
	return nil
}
