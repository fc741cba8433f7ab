package httpfence_test

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/guard/httpfence"
	"github.com/go-fencing/fencing/internal/wiretest"
)

func TestFencesArriveInTheHandlersContext(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]func(*httptest.Server){
		"HTTP/1.1": (*httptest.Server).Start,
		"HTTP/2.0": func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec, proto := &recorder{}, ""
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				proto = r.Proto
				httpfence.Middleware(wiretest.Verifier(t, "inventory"))(rec).ServeHTTP(w, r)
			}))
			version(s)
			t.Cleanup(s.Close)
			c := client(t, s.Client().Transport, s.URL)

			status, _ := get(t, c, s.URL, held, order)
			require.Equal(t, http.StatusOK, status)
			status, _ = get(t, c, s.URL)
			require.Equal(t, http.StatusOK, status, "a request under no lock passes")
			require.Equal(t, name, proto)
			require.Equal(t, []guard.Fence{held, order}, rec.requests[0].fences)
			require.Empty(t, rec.requests[0].header, "verified once, the value is for nobody else")
			require.Empty(t, rec.requests[1].fences)
		})
	}
}

func TestTheCallersRequestIsNotChanged(t *testing.T) {
	t.Parallel()
	s := serve(t, httpfence.Middleware(wiretest.Verifier(t, "inventory"))(&recorder{}))
	c := client(t, nil, s.URL)
	r, err := http.NewRequestWithContext(guard.NewContext(t.Context(), held), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	r.Header.Set("X-Other", "kept")
	before := maps.Clone(r.Header)
	for range 3 { // and so it can be sent again
		resp, err := c.Transport.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, before, r.Header)
		require.Same(t, r, resp.Request)
	}
}

func TestARequestWithoutAHeaderMapGetsOne(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	s := serve(t, httpfence.Middleware(wiretest.Verifier(t, "inventory"))(rec))
	c := client(t, nil, s.URL)
	r, err := http.NewRequestWithContext(guard.NewContext(t.Context(), held), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	r.Header = nil
	resp, err := c.Transport.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, []guard.Fence{held}, rec.requests[0].fences)
}

// http.Client follows redirects through the transport.
func TestARedirectTakesNoFenceToAForeignHost(t *testing.T) {
	t.Parallel()
	foreign := &recorder{}
	elsewhere := serve(t, foreign)
	rec := &recorder{}
	mux := http.NewServeMux()
	mux.Handle("/here", rec)
	mux.Handle("/to-here", http.RedirectHandler("/here", http.StatusTemporaryRedirect))
	mux.Handle("/to-there", http.RedirectHandler(elsewhere.URL+"/there", http.StatusTemporaryRedirect))
	mux.Handle("/chain", http.RedirectHandler("/to-there", http.StatusFound))
	home := serve(t, httpfence.Middleware(wiretest.Verifier(t, "inventory"))(mux))
	c := client(t, nil, home.URL)

	for _, path := range []string{"/to-there", "/chain"} {
		status, body := get(t, c, home.URL+path, held)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "done", body)
	}
	require.Equal(t, []seen{{path: "/there"}, {path: "/there"}}, foreign.requests, "there was a redirect, and no fence with it")

	status, _ := get(t, c, home.URL+"/to-here", held)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []seen{{fences: []guard.Fence{held}, path: "/here"}}, rec.requests, "signed anew at home")
}

func TestOnlyTheNamedOriginsGetFences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		origin, url string
		want        bool
	}{
		{"https://inventory.internal", "https://inventory.internal/x", true},
		{"https://inventory.internal", "https://INVENTORY.internal:443/x", true},
		{"HTTPS://Inventory.Internal:443/", "https://inventory.internal", true},
		{"http://inventory.internal:80", "http://inventory.internal/", true},
		{"http://[::1]:8080", "http://[::1]:8080/", true},
		{"https://inventory.internal", "http://inventory.internal/x", false},
		{"https://inventory.internal", "http://inventory.internal:443/x", false},
		{"https://inventory.internal", "https://inventory.internal:8443/x", false},
		{"https://inventory.internal", "https://inventory.internal.evil.example/x", false},
		{"https://inventory.internal", "https://sub.inventory.internal/x", false},
		{"https://inventory.internal", "https://inventory.internal@evil.example/x", false},
	} {
		var got []string
		client := client(t, roundTripper(func(r *http.Request) (*http.Response, error) {
			got = r.Header[fencewire.Header]
			return nil, errors.New("not sent")
		}), c.origin)
		r, err := http.NewRequestWithContext(guard.NewContext(t.Context(), held), http.MethodGet, c.url, nil)
		require.NoError(t, err)
		r.Host = "inventory.internal" // which says nothing about where the request goes
		_, err = client.Do(r)
		require.ErrorContains(t, err, "not sent")
		require.Equal(t, c.want, len(got) == 1, "%s for %s", c.origin, c.url)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A body tells whether it was closed, as a RoundTripper always must.
type body struct {
	*strings.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

func TestWhatCannotBeSignedIsNotSent(t *testing.T) {
	t.Parallel()
	foreign := "https://elsewhere.example"
	for name, c := range map[string]struct {
		url, set string
		fences   []guard.Fence
		want     string
	}{
		"the header is set by hand":                {"https://inventory.internal", fencewire.Header, []guard.Fence{held}, "has a Fencing-Fence header already"},
		"the header is set by hand, under no lock": {"https://inventory.internal", fencewire.Header, nil, "has a Fencing-Fence header already"},
		"the header is set by hand, elsewhere":     {foreign, fencewire.Header, nil, "has a Fencing-Fence header already"},
		"the header is set in another spelling":    {foreign, "fencing-FENCE", nil, "has a Fencing-Fence header already"},
		"the fence is none":                        {"https://inventory.internal", "X-Other", []guard.Fence{{Resource: "r"}}, "request not sent: guard: fence of \"r\": token 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := client(t, roundTripper(func(*http.Request) (*http.Response, error) {
				t.Error("sent")
				return nil, errors.New("sent")
			}), "https://inventory.internal")
			b := &body{Reader: strings.NewReader("…")}
			r, err := http.NewRequestWithContext(guard.NewContext(t.Context(), c.fences...), http.MethodPost, c.url, b)
			require.NoError(t, err)
			r.Header[c.set] = []string{"a value of somebody"}
			_, err = client.Do(r)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "a value of somebody")
			require.True(t, b.closed)
		})
	}
}

func TestNewTransportRefusesNonsense(t *testing.T) {
	t.Parallel()
	s := wiretest.Signer(t, "inventory", wiretest.Shared)
	for want, origins := range map[string][]string{
		"no origin would get a fence":                 nil,
		`origin "inventory.internal" is not a scheme`: {"https://ok.internal", "inventory.internal"},
		`origin "inventory:80" is not a scheme`:       {"inventory:80"},
		`origin "ftp://inventory" is not`:             {"ftp://inventory"},
		`origin "https://:443" is not`:                {"https://:443"},
		`origin "https://inventory/v1" is not`:        {"https://inventory/v1"},
		`origin "https://inventory?x=1" is not`:       {"https://inventory?x=1"},
		`origin "https://me:xxxxx@inventory" is not`:  {"https://me:hush@inventory"},
		"origin 0 is not a URL":                       {"https://me:hush@[inventory"},
	} {
		_, err := httpfence.NewTransport(nil, s, origins...)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hush")
	}
	_, err := httpfence.NewTransport(nil, nil, "https://inventory")
	require.ErrorContains(t, err, "the signer is nil")
}

func TestClientClosesTheBasesIdleConnections(t *testing.T) {
	t.Parallel()
	base := &idle{}
	client(t, base, "https://inventory.internal").CloseIdleConnections()
	require.True(t, base.closed)
	client(t, roundTripper(nil), "https://inventory.internal").CloseIdleConnections() // has none to close
}

type idle struct {
	http.RoundTripper
	closed bool
}

func (i *idle) CloseIdleConnections() { i.closed = true }
