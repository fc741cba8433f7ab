package httpfence_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/guard/httpfence"
	"github.com/go-fencing/fencing/internal/wiretest"
)

func TestABadValueIs400AndTheHandlerDoesNotRun(t *testing.T) {
	t.Parallel()
	store := guard.NewMemory()
	rec := &recorder{}
	s := serve(t, httpfence.Middleware(wiretest.Verifier(t, "inventory", fencewire.WithGuards(store)))(rec))
	good := wiretest.Values(t, wiretest.Signer(t, "inventory", wiretest.Shared), held)
	for name, header := range wiretest.Bad(t, held, order) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		require.NoError(t, err)
		r.Header[fencewire.Header] = header
		status, body := do(t, s.Client(), r)
		require.Equal(t, http.StatusBadRequest, status, name)
		require.Contains(t, body, "unverified fence", name)
		require.NotContains(t, body, held.Nonce, name)
		require.NotContains(t, body, good[0][strings.LastIndexByte(good[0], ';')+1:], name)
		require.NotContains(t, body, "secret-of-thirty-two", name)
	}
	require.Empty(t, rec.requests)
	first := held
	first.Token = 1
	require.NoError(t, store.Raise(t.Context(), first), "nothing was raised")
}

func TestReplayedAfterItsTimeIs400(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := httpfence.Middleware(wiretest.Verifier(t, "inventory"))(&recorder{})
		captured := wiretest.Values(t, wiretest.Signer(t, "inventory", wiretest.Shared), held)
		send := func() *httptest.ResponseRecorder {
			r, w := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil), httptest.NewRecorder()
			r.Header[fencewire.Header] = captured
			h.ServeHTTP(w, r)
			return w
		}
		time.Sleep(time.Minute)
		require.Equal(t, http.StatusOK, send().Code)
		time.Sleep(time.Second) // the time is sent in whole seconds
		w := send()
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), "it was sent again")
	})
}

// What no Go client would send, on the wire.
func TestRawHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t, httpfence.Middleware(wiretest.Verifier(t, "inventory"))(&recorder{}))
	both := wiretest.Values(t, wiretest.Signer(t, "inventory", wiretest.Shared), held, order)
	for name, c := range map[string]struct {
		lines string
		want  int
	}{
		"no header":                {"X-Other: 1\r\n", 200},
		"two lines":                {"Fencing-Fence: " + both[0] + "\r\nFencing-Fence: " + both[1] + "\r\n", 200},
		"two lines in other cases": {"fencing-fence:" + both[0] + " \r\nFENCING-FENCE:\t" + both[1] + "\r\n", 200},
		"joined":                   {"Fencing-Fence: " + both[0] + ", " + both[1] + "\r\n", 200},
		"folded between values":    {"Fencing-Fence: " + both[0] + ",\r\n " + both[1] + "\r\n", 200},
		"folded within a value":    {"Fencing-Fence: " + both[0][:20] + "\r\n " + both[0][20:] + "\r\n", 400},
		"empty":                    {"Fencing-Fence:\r\n", 400},
		"an empty element":         {"Fencing-Fence: " + both[0] + ",,\r\n", 400},
		"quoted":                   {"Fencing-Fence: \"" + both[0] + "\"\r\n", 400},
		"not ASCII":                {"Fencing-Fence: склад;1;n;h\r\n", 400},
		"a NUL":                    {"Fencing-Fence: " + both[0] + "\x00\r\n", 400},
		"a space in the name":      {"Fencing-Fence : " + both[0] + "\r\n", 400},
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", c.lines)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, name)
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
		require.NoError(t, conn.Close())
		require.Equal(t, c.want, resp.StatusCode, name)
	}
}

func TestAFenceThatIsNotRaisedIsRefused(t *testing.T) {
	t.Parallel()
	s := wiretest.Signer(t, "inventory", wiretest.Shared)
	for name, c := range map[string]struct {
		err    error
		status int
		body   string
	}{
		"stale":   {&guard.StaleError{Held: held, Current: guard.Fence{Token: 34, Holder: "worker-b"}}, http.StatusConflict, "worker-a holds token 33, superseded by token 34 of worker-b"},
		"blocked": {guard.ErrBlocked, http.StatusServiceUnavailable, "could not be raised; nothing was written"},
		"down":    {errors.New("dial db-7.internal"), http.StatusServiceUnavailable, "could not be raised; nothing was written"},
	} {
		rec := &recorder{}
		v := wiretest.Verifier(t, "inventory", fencewire.WithGuards(wiretest.BrokenStore{Err: c.err}))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		r.Header[fencewire.Header] = wiretest.Values(t, s, held)

		w := httptest.NewRecorder()
		httpfence.Middleware(v)(rec).ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, name)
		require.Contains(t, w.Body.String(), c.body, name)
		require.NotContains(t, w.Body.String(), "db-7", name)
		require.NotContains(t, w.Body.String(), held.Nonce, name)

		var got error
		own := httpfence.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) { got = err; w.WriteHeader(http.StatusTeapot) })
		w = httptest.NewRecorder()
		httpfence.Middleware(v, own)(rec).ServeHTTP(w, r)
		require.Equal(t, http.StatusTeapot, w.Code, name)
		require.ErrorIs(t, got, c.err, name)
		require.Empty(t, rec.requests, name)
	}
}

func TestTheOuterRequestKeepsItsHeader(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.Header[fencewire.Header] = wiretest.Values(t, wiretest.Signer(t, "inventory", wiretest.Shared), held)
	r.Header.Set("X-Other", "kept")
	httpfence.Middleware(wiretest.Verifier(t, "inventory"))(http.HandlerFunc(func(w http.ResponseWriter, inner *http.Request) {
		require.Equal(t, "kept", inner.Header.Get("X-Other"))
		rec.ServeHTTP(w, inner)
	})).ServeHTTP(httptest.NewRecorder(), r)
	require.Len(t, rec.requests, 1)
	require.Len(t, r.Header[fencewire.Header], 1)
}

func TestMiddlewarePanicsWithoutAVerifier(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { httpfence.Middleware(nil) })
	require.Panics(t, func() { httpfence.Middleware(wiretest.Verifier(t, "inventory"), httpfence.WithErrorHandler(nil)) })
}

// A proxy between two services: fences are checked, and signed anew for the next
// one, by what stands in it.
func TestHopToHop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes, signs bool
		audience     string // of the service behind the proxy
		status       int
		fences       []guard.Fence
	}{
		"checks, and signs for the next":       {true, true, "stock", http.StatusOK, []guard.Fence{held}},
		"checks, and signs for nobody":         {true, false, "stock", http.StatusOK, nil},
		"passes the header through":            {false, false, "inventory", http.StatusOK, []guard.Fence{held}},
		"passes it to whom it is not made for": {false, false, "stock", http.StatusBadRequest, nil},
		"signs without having checked":         {false, true, "stock", http.StatusBadGateway, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := &recorder{}
			stock := serve(t, httpfence.Middleware(wiretest.Verifier(t, c.audience))(rec))
			target, err := url.Parse(stock.URL)
			require.NoError(t, err)
			proxy := &httputil.ReverseProxy{
				Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
				ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
			}
			if c.signs {
				proxy.Transport, err = httpfence.NewTransport(nil, wiretest.Signer(t, "stock", wiretest.Shared), stock.URL)
				require.NoError(t, err)
			}
			front := http.Handler(proxy)
			if c.takes {
				front = httpfence.Middleware(wiretest.Verifier(t, "inventory"))(proxy)
			}
			inventory := serve(t, front)
			status, _ := get(t, client(t, nil, inventory.URL), inventory.URL, held)
			require.Equal(t, c.status, status)
			if status == http.StatusOK {
				require.Equal(t, []seen{{fences: c.fences, path: "/"}}, rec.requests)
				return
			}
			require.Empty(t, rec.requests)
		})
	}
}
