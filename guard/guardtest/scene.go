package guardtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/go-fencing/fencing/guard"
)

// A scene is what one check plays in: the store, names of its own, and the first
// thing that went wrong. After that its methods do nothing, so that a check reads
// as the sequence of events that it is.
type scene struct {
	Store
	id  string
	err error
}

func newScene(s Store) *scene { return &scene{Store: s, id: rand.Text()} }

// of returns a fence of a resource of this scene.
func (s *scene) of(resource, holder string, token guard.Token) guard.Fence {
	return guard.Fence{Resource: "guardtest:" + s.id + ":" + resource, Token: token, Nonce: rand.Text(), Holder: holder}
}

// fence returns a fence of the one resource that most checks are about.
func (s *scene) fence(holder string, token guard.Token) guard.Fence { return s.of("r", holder, token) }

func (s *scene) key(name string) string { return s.id + ":" + name }

func (s *scene) failf(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// accept notes an error of something that had to succeed.
func (s *scene) accept(what string, err error) {
	if err != nil {
		s.failf("%s: got error: %w", what, err)
	}
}

// refuse notes if something was not refused as target.
func (s *scene) refuse(what string, err, target error) {
	if !errors.Is(err, target) {
		s.failf("%s: got %w, want %w", what, orNil(err), target)
	}
}

// refuseStale notes if held was not refused as stale because of current, or the
// error does not say so.
func (s *scene) refuseStale(what string, err error, held, current guard.Fence) {
	s.refuse(what, err, guard.ErrStale)
	conflict := held.Token == current.Token
	if errors.Is(err, guard.ErrConflict) != conflict {
		s.failf("%s: got %w, want errors.Is(err, guard.ErrConflict) to be %t", what, orNil(err), conflict)
	}
	stale, ok := errors.AsType[*guard.StaleError](err)
	if !ok {
		s.failf("%s: got %w, want a *guard.StaleError", what, orNil(err))
		return
	}
	if stale.Held != held {
		s.failf("%s: StaleError.Held is %+v, want %+v", what, stale.Held, held)
	}
	got := stale.Current
	if got.Token != current.Token || kept(got.Resource, current.Resource) || kept(got.Nonce, current.Nonce) || kept(got.Holder, current.Holder) {
		s.failf("%s: StaleError.Current is %+v, want %+v or the parts of it that the store keeps", what, got, current)
	}
}

// kept reports that a store kept something else than it was given.
func kept(got, want string) bool { return got != "" && got != want }

// orNil stands for a missing error in a message, where %w would print %!w.
func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

func (s *scene) raise(ctx context.Context, f guard.Fence) {
	if s.err == nil {
		s.accept(fmt.Sprintf("raise %v", f), s.Raise(ctx, f))
	}
}

func (s *scene) raiseIsStale(ctx context.Context, held, current guard.Fence) {
	if s.err == nil {
		s.refuseStale(fmt.Sprintf("raise %v after %v", held, current), s.Raise(ctx, held), held, current)
	}
}

func (s *scene) write(ctx context.Context, f guard.Fence, value string) {
	if s.err == nil {
		s.accept(fmt.Sprintf("write under %v", f), s.put(ctx, s.key("k"), value, f))
	}
}

func (s *scene) writeIsStale(ctx context.Context, held, current guard.Fence) {
	if s.err == nil {
		err := s.put(ctx, s.key("k"), "written by a stale holder", held)
		s.refuseStale(fmt.Sprintf("write under %v after %v was raised", held, current), err, held, current)
	}
}

func (s *scene) writeIsRefused(ctx context.Context, f guard.Fence, target error) {
	if s.err == nil {
		err := s.put(ctx, s.key("k"), "written by a holder that must be refused", f)
		s.refuse(fmt.Sprintf("write under %v", f), err, target)
	}
}

// holds notes if the data, read under f, is not want; "" stands for no data.
func (s *scene) holds(ctx context.Context, f guard.Fence, want string) {
	s.keyHolds(ctx, f, "k", want)
}

func (s *scene) keyHolds(ctx context.Context, f guard.Fence, name, want string) {
	if s.err != nil {
		return
	}
	got, err := s.get(ctx, s.key(name), f)
	s.accept(fmt.Sprintf("read under %v", f), err)
	if got != want {
		s.failf("the data is %q, want %q (read under %v)", got, want, f)
	}
}

// put writes one value in a transaction under fences.
func (s *scene) put(ctx context.Context, key, value string, fences ...guard.Fence) error {
	return s.Update(guard.NewContext(ctx, fences...), func(ctx context.Context, tx Tx) error { return tx.Put(ctx, key, value) })
}

// get reads one value in a transaction under fences; "" if there is none.
func (s *scene) get(ctx context.Context, key string, fences ...guard.Fence) (value string, err error) {
	err = s.Update(guard.NewContext(ctx, fences...), func(ctx context.Context, tx Tx) (err error) {
		value, _, err = tx.Get(ctx, key)
		return err
	})
	return value, err
}

// start runs fn in a goroutine of its own.
func start(fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

// await returns the outcome of something that must come to an end.
func await(ctx context.Context, what string, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s did not return: %w", what, context.Cause(ctx))
	}
}
