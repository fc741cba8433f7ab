package zklock_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/zklock"
)

// behindTLS returns the address of a server that ends TLS in front of another, and how
// to reach it.
func behindTLS(t *testing.T, server string) (addr string, client *tls.Config) {
	certified := httptest.NewTLSServer(nil) // for its certificate
	certified.Close()
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				_ = from.Close()
				continue
			}
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
		}
	}()
	return l.Addr().String(), &tls.Config{RootCAs: roots}
}

func TestADialerOfTLS(t *testing.T) {
	t.Parallel()
	addr, config := behindTLS(t, servertest.ZooKeeper(t)[0])
	dial := func(config *tls.Config) zklock.Option {
		return zklock.WithDialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, addr, config)
		})
	}
	b := open(t, []string{addr}, dial(config))
	first := lease(t, locker(t, b), "sku-42")
	require.NoError(t, first.Release(t.Context()))
	require.Greater(t, lease(t, locker(t, b), "sku-42").Fence().Token, first.Fence().Token)

	// A server whose certificate nobody vouches for cannot be reached, and the error says why.
	b = open(t, []string{addr}, dial(&tls.Config{}))
	_, err := locker(t, b, lock.WithTTL(time.Second)).TryAcquire(t.Context(), "sku-42")
	require.ErrorContains(t, err, "certificate")
}
