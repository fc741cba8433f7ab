package objectguard

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// settleBound bounds how long the outcome of a write is asked for whose reply was lost.
const settleBound = 5 * time.Second

// Read returns the data of an object under the fences of ctx, in one request; nil if
// there is none. None of a later fence has written what it returns.
func (g *Guard) Read(ctx context.Context, key string) ([]byte, error) {
	var data []byte
	_, err := g.update(ctx, "read", key, func(old []byte) ([]byte, error) { data = old; return old, nil })
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Write replaces the data of an object under the fences of ctx, whatever it was, in
// two requests. For its errors see the package.
func (g *Guard) Write(ctx context.Context, key string, data []byte) error {
	if data == nil {
		data = []byte{}
	}
	return g.Update(ctx, key, func([]byte) ([]byte, error) { return data, nil })
}

// Delete removes the data of an object under the fences of ctx, in two requests. The
// object stays, with its fences.
func (g *Guard) Delete(ctx context.Context, key string) error {
	return g.Update(ctx, key, func([]byte) ([]byte, error) { return nil, nil })
}

// Update writes what fn makes of the data of an object, under the fences of ctx and on
// the condition that it is still the same. fn runs again when another writer of the
// same fence was faster; nil stands for no data. Where it changes nothing, nothing is
// written. An error of fn is returned as it is.
func (g *Guard) Update(ctx context.Context, key string, fn func(old []byte) ([]byte, error)) error {
	held, err := g.update(ctx, "write", key, fn)
	if err == nil {
		g.observer.Committed(ctx, held)
	}
	return err
}

func (g *Guard) update(ctx context.Context, what, key string, fn func(old []byte) ([]byte, error)) ([]guard.Fence, error) {
	held, err := g.heldFor(ctx, key)
	var failed *fnError
	if err == nil {
		err = g.change(ctx, key, held, fn)
		if errors.As(err, &failed) {
			return nil, failed.error
		}
	}
	if err == nil {
		return held, nil
	}
	err = fmt.Errorf("objectguard: %s %q: %w", what, key, err)
	for _, meaning := range []error{guard.ErrStale, guard.ErrNotRaised, guard.ErrNoFence, guard.ErrCommitUnknown} {
		if errors.Is(err, meaning) {
			g.observer.Refused(ctx, err)
			break
		}
	}
	return nil, err
}

// heldFor returns the fences of ctx whose object key is.
func (g *Guard) heldFor(ctx context.Context, key string) (held []guard.Fence, err error) {
	all := guard.Fences(ctx)
	if len(all) == 0 {
		return nil, fmt.Errorf("%w in the context; acquire a lease and use its context", guard.ErrNoFence)
	}
	for _, f := range all {
		if err := f.Validate(); err != nil {
			return nil, err
		}
		if key != "" && g.object(f.Resource) == key {
			held = append(held, f)
		}
	}
	if len(held) == 0 {
		return nil, fmt.Errorf("%w of the context is of this object: that of %q is in object %q", guard.ErrNoFence, all[0].Resource, g.object(all[0].Resource))
	}
	return held, nil
}

// An fnError is an error of the caller's own function.
type fnError struct{ error }

func (g *Guard) change(ctx context.Context, key string, held []guard.Fence, fn func(old []byte) ([]byte, error)) error {
	end := time.Now().Add(patience)
	for try := 1; ; try++ {
		o, version, err := g.get(ctx, key)
		if err != nil {
			return fmt.Errorf("nothing was written: %w", err) // not by an earlier try either
		}
		if err := o.enter(held); err != nil {
			return err
		}
		before := o.Write
		data, err := fn(bytes.Clone(o.content())) // which fn may write into
		switch {
		case err != nil:
			return &fnError{err}
		case (data == nil) == o.None && bytes.Equal(data, o.data):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("nothing was written: %w", context.Cause(ctx))
		}
		o.data, o.None, o.Write = data, data == nil, rand.Text()
		err = g.put(ctx, key, o, version)
		if err != nil && !errors.Is(err, ErrChanged) {
			err = g.settle(ctx, key, o, version, before, err)
		}
		switch {
		case !errors.Is(err, ErrChanged):
			return err
		case time.Now().After(end):
			return fmt.Errorf("nothing was written: others have changed the object, or kept it busy, at each of %d tries in %v", try, patience)
		}
		rest(ctx, try)
	}
}

// settle finds out what became of a write of o over version whose reply was lost, but
// for cause: nil if it was done, ErrChanged if it was not and never will be. before is
// the write that it was to replace. While the caller's context is alive it repeats
// the write.
func (g *Guard) settle(caller context.Context, key string, o object, version, before string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(caller), settleBound)
	defer cancel()
	for try, lost := 0, 0; ; try++ {
		now, current, err := g.get(ctx, key)
		switch {
		case err != nil:
		case now.Write == o.Write:
			return nil
		case current == version && caller.Err() != nil:
			return unknown(cause, errors.New("it has not arrived yet"))
		case current == version:
			// It may still arrive. Only one of the two can be done, and both are the same.
			if err = g.put(ctx, key, o, version); err == nil {
				return nil
			}
			if lost++; lost == repeats && !errors.Is(err, ErrChanged) {
				return unknown(cause, err)
			}
		case now.Write == before:
			return ErrChanged // by a raise, so that it can be done no more
		default:
			return unknown(cause, errors.New("another write has replaced it since, or came before it"))
		}
		if rest(ctx, try); ctx.Err() != nil {
			return unknown(cause, err)
		}
	}
}

func unknown(cause, asked error) error {
	return fmt.Errorf("%w: the reply was lost: %w; asked afterwards: %w; acquire the lock again before you look at the data: until then the write may still arrive", guard.ErrCommitUnknown, cause, asked)
}
