package httpfence_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/guard/httpfence"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/internal/wiretest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

var (
	held  = guard.Fence{Resource: "inventory:sku-42", Token: 33, Nonce: "nonce-of-a", Holder: "worker-a"}
	order = guard.Fence{Resource: "заказ:7, \"gold\"", Token: 9, Nonce: "nonce-of-a2", Holder: "worker-a"}
)

// client returns a client whose fences go to origins, signed for the audience
// "inventory".
func client(t testing.TB, base http.RoundTripper, origins ...string) *http.Client {
	t.Helper()
	transport, err := httpfence.NewTransport(base, wiretest.Signer(t, "inventory", wiretest.Shared), origins...)
	require.NoError(t, err)
	c := &http.Client{Transport: transport}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// A seen request is what a handler behind the middleware, or without one, was given.
type seen struct {
	fences []guard.Fence
	header []string
	path   string
}

// recorder notes every request that gets to it.
type recorder struct{ requests []seen }

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec.requests = append(rec.requests, seen{guard.Fences(r.Context()), r.Header[fencewire.Header], r.URL.Path})
	_, _ = io.WriteString(w, "done")
}

func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// get sends a request under fences and returns the status and the body.
func get(t testing.TB, c *http.Client, url string, fences ...guard.Fence) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(guard.NewContext(t.Context(), fences...), http.MethodGet, url, nil)
	require.NoError(t, err)
	return do(t, c, r)
}

func do(t testing.TB, c *http.Client, r *http.Request) (int, string) {
	t.Helper()
	resp, err := c.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}
