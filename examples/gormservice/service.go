package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"gorm.io/gorm"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

var (
	errSoldOut  = errors.New("sold out")
	errNoCredit = errors.New("the buyer has no credit")
)

// patience bounds a request.
const patience = 30 * time.Second

type service struct {
	locker   *lock.Locker
	articles repository
	credit   string // URL, or "" if everyone has it
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /articles", handle(http.StatusCreated, s.create))
	mux.HandleFunc("GET /articles/{sku}", handle(http.StatusOK, s.get))
	mux.HandleFunc("POST /articles/{sku}/orders", handle(http.StatusCreated, s.order))
	mux.HandleFunc("POST /articles/{sku}/restock", handle(http.StatusOK, s.restock))
	mux.HandleFunc("PUT /articles/{sku}/stock", handle(http.StatusOK, s.setStock))
	return mux
}

func (s *service) create(r *http.Request) (a *Article, err error) {
	if err := read(r, &a); err != nil {
		return nil, err
	}
	err = s.locked(r, a.SKU, func(ctx context.Context) error { return s.articles.create(ctx, a) })
	return a, err
}

func (s *service) get(r *http.Request) (*Article, error) {
	return s.articles.get(r.Context(), r.PathValue("sku"))
}

// order reads, decides and writes, under the lock.
func (s *service) order(r *http.Request) (o *Order, err error) {
	var wish struct{ Buyer string }
	if err := read(r, &wish); err != nil {
		return nil, err
	}
	err = s.locked(r, r.PathValue("sku"), func(ctx context.Context) error {
		a, err := s.articles.get(ctx, r.PathValue("sku"))
		if err != nil {
			return err
		}
		if a.Stock == 0 {
			return errSoldOut
		}
		if err := s.hasCredit(ctx, wish.Buyer); err != nil { // it may take its time
			return err
		}
		o, err = s.articles.sell(ctx, a, wish.Buyer)
		return err
	})
	return o, err
}

func (s *service) restock(r *http.Request) (a *Article, err error) {
	var delivery struct{ Units int }
	if err := read(r, &delivery); err != nil {
		return nil, err
	}
	err = s.locked(r, r.PathValue("sku"), func(ctx context.Context) error {
		found, err := s.articles.restock(ctx, r.PathValue("sku"), delivery.Units)
		if err == nil && !found {
			err = gorm.ErrRecordNotFound
		}
		if err != nil {
			return err
		}
		a, err = s.articles.get(ctx, r.PathValue("sku"))
		return err
	})
	return a, err
}

// setStock was written by somebody who had not heard of the lock. It never works,
// rather than now and then in the middle of a sale.
func (s *service) setStock(r *http.Request) (a *Article, err error) {
	if err := read(r, &a); err != nil {
		return nil, err
	}
	if err := s.articles.setStock(r.Context(), r.PathValue("sku"), a.Stock); err != nil {
		return nil, err
	}
	return s.get(r)
}

// locked runs fn under the lock of an article. The end of a lease ends its context;
// fn goes on all the same, because it is for the store to say whether its writes
// still count: it takes them unless another holder has come since.
func (s *service) locked(r *http.Request, sku string, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	done := false
	err := s.locker.Do(ctx, resource(sku), func(lease context.Context) error {
		lease, cancel := context.WithTimeout(context.WithoutCancel(lease), patience)
		defer cancel()
		err := fn(lease)
		done = err == nil
		return err
	})
	if done && errors.Is(err, lock.ErrLost) {
		return nil // the store took the writes: that the lease has ended harms nobody
	}
	return err
}

func (s *service) hasCredit(ctx context.Context, buyer string) error {
	if s.credit == "" {
		return nil
	}
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, s.credit+"?buyer="+url.QueryEscape(buyer), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it was not read
	if answer.StatusCode != http.StatusOK {
		return errNoCredit
	}
	return nil
}

var errUnreadable = errors.New("the body cannot be read")

func read(r *http.Request, v any) error {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return nil
}

// handle answers in JSON, with a status that tells what the client can do.
func handle[T any](done int, do func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := do(r)
		if err != nil {
			answer(w, status(err), map[string]string{"error": err.Error()})
			return
		}
		answer(w, done, v)
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has gone if it fails
}

func status(err error) int {
	switch {
	case errors.Is(err, guard.ErrStale): // another request has come since: look again, then repeat it
		return http.StatusConflict
	case errors.Is(err, lock.ErrHeld), errors.Is(err, guard.ErrBlocked): // busy: repeat it
		return http.StatusServiceUnavailable
	case errors.Is(err, gorm.ErrRecordNotFound):
		return http.StatusNotFound
	case errors.Is(err, errSoldOut):
		return http.StatusGone
	case errors.Is(err, errNoCredit):
		return http.StatusPaymentRequired
	case errors.Is(err, errUnreadable):
		return http.StatusBadRequest
	}
	// guard.ErrNoFence is a fault of the program. guard.ErrCommitUnknown leaves open
	// what was written: look before you repeat.
	return http.StatusInternalServerError
}
