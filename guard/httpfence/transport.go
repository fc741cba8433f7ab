package httpfence

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-fencing/fencing/guard/fencewire"
)

// A Transport is an http.RoundTripper that sends the fences of the request's context
// to one service. It is safe for concurrent use if its base is.
type Transport struct {
	base    http.RoundTripper
	signer  *fencewire.Signer
	origins map[string]bool
}

// NewTransport returns a Transport over base, or over http.DefaultTransport if base
// is nil. Only requests to origins, such as "https://inventory.internal:8443", get
// the header: scheme, host and port have to match, whatever the Host header says, and
// "localhost" is not "127.0.0.1". To every other place a request goes as it is, and a
// guarded write there fails with guard.ErrNoFence. So a redirect takes no fence to a
// foreign host, nor from https to http, and is signed anew within origins.
func NewTransport(base http.RoundTripper, signer *fencewire.Signer, origins ...string) (*Transport, error) {
	if base == nil {
		base = http.DefaultTransport
	}
	if signer == nil {
		return nil, errors.New("httpfence: the signer is nil")
	}
	if len(origins) == 0 {
		return nil, errors.New("httpfence: no origin would get a fence; name those of the service, such as \"https://inventory.internal:8443\"")
	}
	t := &Transport{base: base, signer: signer, origins: make(map[string]bool)}
	for i, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil {
			return nil, fmt.Errorf("httpfence: origin %d is not a URL such as \"https://inventory.internal:8443\"", i) // not err: it may quote a password
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("httpfence: origin %q is not a scheme, http or https, with a host and no more, such as \"https://inventory.internal:8443\"", u.Redacted())
		}
		t.origins[originOf(u)] = true
	}
	return t, nil
}

// RoundTrip implements http.RoundTripper. Without fences in the request's context,
// it adds nothing. It fails, and sends nothing, where the request has the header
// already, whatever its host: somebody else's value would stand beside the signed
// ones, and http.Client would take it along on a redirect.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	values, err := t.values(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // the request was not sent, the error to report is why
		}
		return nil, err
	}
	if len(values) == 0 {
		return t.base.RoundTrip(r)
	}
	signed := r.WithContext(r.Context()) // the caller's request is not for us to change
	signed.Header = make(http.Header, len(r.Header)+1)
	maps.Copy(signed.Header, r.Header)
	signed.Header[fencewire.Header] = values
	resp, err := t.base.RoundTrip(signed)
	if resp != nil {
		resp.Request = r // the request that was asked for, without what is nobody's to log
	}
	return resp, err
}

func (t *Transport) values(r *http.Request) ([]string, error) {
	for name := range r.Header {
		if strings.EqualFold(name, fencewire.Header) {
			return nil, fmt.Errorf("httpfence: the request has a %s header already; the transport sets it, from the context (put Middleware in front of a proxy)", fencewire.Header)
		}
	}
	if r.URL == nil || !t.origins[originOf(r.URL)] { // without a URL the base says what is wrong
		return nil, nil
	}
	values, err := t.signer.Sign(r.Context())
	if err != nil {
		return nil, fmt.Errorf("httpfence: request not sent: %w", err)
	}
	return values, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the base.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func originOf(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
