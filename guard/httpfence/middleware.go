package httpfence

import (
	"errors"
	"maps"
	"net/http"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
)

// An Option configures [Middleware].
type Option func(*options)

type options struct {
	refuse func(w http.ResponseWriter, r *http.Request, err error)
}

// WithErrorHandler answers requests that are refused, in a form of your own or with
// a line in your log. The error is [fencewire.ErrUnverified], or that of a guard in
// which the fence could not be raised, such as [guard.ErrStale]. Do not log the
// request's header: it has a nonce. Defaults to [Refuse].
func WithErrorHandler(h func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return func(o *options) { o.refuse = h }
}

// Middleware returns what puts v in front of a handler: the fences of the request's
// header get into its context, raised in v's guards, and the header off the request.
// A request without the header passes as it is. One with any bad value is refused,
// and so is one whose fence is not raised; the handler does not run. It panics if v
// or an option is nil.
func Middleware(v *fencewire.Verifier, opts ...Option) func(http.Handler) http.Handler {
	o := options{refuse: Refuse}
	for _, opt := range opts {
		opt(&o)
	}
	if v == nil || o.refuse == nil {
		panic("httpfence: Middleware needs a verifier, and an error handler is not nil")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			values, sent := r.Header[fencewire.Header]
			if !sent {
				next.ServeHTTP(w, r)
				return
			}
			ctx, err := v.Verify(r.Context(), values)
			if err != nil {
				o.refuse(w, r, err)
				return
			}
			r = r.WithContext(ctx) // a copy: whoever is in front of us keeps the header
			r.Header = maps.Clone(r.Header)
			delete(r.Header, fencewire.Header)
			next.ServeHTTP(w, r)
		})
	}
}

// Refuse answers a request whose fences were refused: 400 for
// [fencewire.ErrUnverified] and 409 for [guard.ErrStale], with the error as text,
// and 503 where the fence could not be raised for another reason, which stays
// between the service and its database.
func Refuse(w http.ResponseWriter, _ *http.Request, err error) {
	switch {
	case errors.Is(err, fencewire.ErrUnverified):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, guard.ErrStale):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		http.Error(w, "httpfence: the fence could not be raised; nothing was written", http.StatusServiceUnavailable)
	}
}
