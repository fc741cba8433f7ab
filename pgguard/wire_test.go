package pgguard_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

// A client speaks the protocol by hand, so that it can die without a word.
type client struct {
	t    *testing.T
	conn net.Conn
}

// rawClient returns a client and what kills it.
func rawClient(t *testing.T, url string) (c client, kill func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	hijacked, err := conn.PgConn().Hijack()
	require.NoError(t, err)
	return client{t, hijacked.Conn}, func() { require.NoError(t, hijacked.Conn.Close()) }
}

// Send sends a query and does not wait for its answer.
func (c client) Send(sql string) {
	c.t.Helper()
	message, err := (&pgproto3.Query{String: sql}).Encode(nil)
	require.NoError(c.t, err)
	_, err = c.conn.Write(message)
	require.NoError(c.t, err)
}

func nonceOf(ctx context.Context, resource string) string {
	f, _ := guard.FromContext(ctx, resource)
	return f.Nonce
}

func isStale(err error) bool { return errors.Is(err, guard.ErrStale) }
