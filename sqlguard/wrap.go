package sqlguard

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
)

// Wrap returns a connector whose connections fence by themselves: open it with
// sql.OpenDB(sqlguard.Wrap(c, d)).
func Wrap(c driver.Connector, d Dialect, opts ...Option) driver.Connector {
	e, s, err := configure(d, opts)
	if err == nil && c == nil {
		err = errors.New("sqlguard: the connector is nil")
	}
	return &connector{inner: c, engine: e, settings: s, err: err}
}

type connector struct {
	inner  driver.Connector
	engine engine
	settings
	err error
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.inner.Connect(ctx)
}

func (c *connector) Driver() driver.Driver { return c.inner.Driver() }

func (c *connector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
