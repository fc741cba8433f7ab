package httpfence_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/guard/httpfence"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// What both services get from their configuration.
func sharedKey() fencewire.Key {
	secret := make([]byte, fencewire.MinSecret)
	_, _ = rand.Read(secret) // never fails
	return must(fencewire.NewKey("2026-03", secret))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// Service A locks and calls service B, whose store refuses the late call of a holder
// that was paused. What B answers then is for B to say: 409 here.
func Example() {
	key := sharedKey()

	// Service B.
	store := guard.NewMemory() // pgguard.New(pool), in a service with a database
	verifier := must(fencewire.NewVerifier("inventory", []fencewire.Key{key}, fencewire.WithGuards(store)))
	stock := 100
	sell := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := store.Write(r.Context(), "inventory:sku-42", func() error { stock -= 10; return nil }) // store.InTx(r.Context(), …)
		switch {
		case errors.Is(err, guard.ErrStale): // superseded since the request came in
			http.Error(w, err.Error(), http.StatusConflict)
		case errors.Is(err, guard.ErrNoFence): // a caller without the lock
			http.Error(w, err.Error(), http.StatusPreconditionRequired)
		case err != nil:
			http.Error(w, "not sold", http.StatusInternalServerError)
		}
	})
	b := httptest.NewServer(httpfence.Middleware(verifier)(sell))
	defer b.Close()

	// Service A.
	signer := must(fencewire.NewSigner("inventory", key))
	client := &http.Client{Transport: must(httpfence.NewTransport(http.DefaultTransport, signer, b.URL))}
	call := func(ctx context.Context) {
		r := must(http.NewRequestWithContext(ctx, http.MethodPost, b.URL+"/sell", nil))
		resp := must(client.Do(r))
		defer func() { _ = resp.Body.Close() }()
		fmt.Println(resp.Status)
	}
	ctx := context.Background()
	locker := must(lock.New(memlock.New()))
	defer func() { _ = locker.Close() }()

	paused := must(locker.Acquire(ctx, "inventory:sku-42"))
	call(paused.Context())
	late := context.WithoutCancel(paused.Context()) // a paused process does not see its lease end
	_ = paused.Release(ctx)

	_ = locker.Do(ctx, "inventory:sku-42", func(ctx context.Context) error { call(ctx); return nil })
	call(late)
	call(ctx)
	fmt.Println("stock:", stock)
	// Output:
	// 200 OK
	// 200 OK
	// 409 Conflict
	// 428 Precondition Required
	// stock: 80
}

// Fences go to the named origins only; to others, and after a redirect there, the
// same client sends none.
func ExampleNewTransport() {
	signer := must(fencewire.NewSigner("inventory", sharedKey()))
	transport, err := httpfence.NewTransport(http.DefaultTransport, signer, "https://inventory.internal", "https://inventory.internal:8443")
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}
	_ = client

	_, err = httpfence.NewTransport(nil, signer, "inventory.internal/v1")
	fmt.Println(err)
	// Output:
	// httpfence: origin "inventory.internal/v1" is not a scheme, http or https, with a host and no more, such as "https://inventory.internal:8443"
}

// A proxy between two services checks the fences of the one and signs them for the
// next.
func ExampleMiddleware() {
	key := sharedKey()
	stock := httptest.NewServer(httpfence.Middleware(must(fencewire.NewVerifier("stock", []fencewire.Key{key})))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, guard.Fences(r.Context()))
		})))
	defer stock.Close()

	next := must(url.Parse(stock.URL))
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(next) },
		Transport: must(httpfence.NewTransport(nil, must(fencewire.NewSigner("stock", key)), stock.URL)),
	}
	front := httptest.NewServer(httpfence.Middleware(must(fencewire.NewVerifier("inventory", []fencewire.Key{key})))(proxy))
	defer front.Close()

	client := &http.Client{Transport: must(httpfence.NewTransport(nil, must(fencewire.NewSigner("inventory", key)), front.URL))}
	ctx := guard.NewContext(context.Background(), guard.Fence{Resource: "inventory:sku-42", Token: 33, Nonce: "5f0c", Holder: "worker-a"})
	resp := must(client.Do(must(http.NewRequestWithContext(ctx, http.MethodGet, front.URL, nil))))
	defer func() { _ = resp.Body.Close() }()
	fmt.Println(string(must(io.ReadAll(resp.Body))))
	// Output:
	// ["inventory:sku-42" token 33 of worker-a]
}

// The answer to a request that is refused, and a line in the log with what the
// caller is not told.
func ExampleWithErrorHandler() {
	verifier := must(fencewire.NewVerifier("inventory", []fencewire.Key{sharedKey()}))
	fenced := httpfence.Middleware(verifier, httpfence.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, err error) {
		slog.DebugContext(r.Context(), "request refused", "error", err.Error()) // not the header
		httpfence.Refuse(w, r, err)
	}))
	r := httptest.NewRequest(http.MethodPost, "/sell", nil)
	r.Header.Set(fencewire.Header, "inventory:sku-42;9223372036854775807;n;mallory")
	w := httptest.NewRecorder()
	fenced(http.NotFoundHandler()).ServeHTTP(w, r)
	fmt.Print(w.Code, " ", w.Body)
	// Output:
	// 400 fencewire: value 1: it has 4 parts and not the 8 of a signed fence: unverified fence
}
