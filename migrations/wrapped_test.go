package migrations_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sqlguard"
)

// A connectorTo opens the connections of another database.
type connectorTo struct{ db *sql.DB }

func (c connectorTo) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var inner driver.Conn
	err = conn.Raw(func(dc any) error { inner = dc.(driver.Conn); return nil })
	return inner, err
}

func (c connectorTo) Driver() driver.Driver { return c.db.Driver() }

func TestMigrationsRefuseAWrappedDatabase(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect string, db *sql.DB) {
		wrapped := sql.OpenDB(sqlguard.Wrap(connectorTo{db}, sqlguard.Dialect(dialect)))
		for _, migrate := range []func(context.Context, *sql.DB, string, ...migrations.Option) error{migrations.UpDB[string], migrations.DownDB[string]} {
			require.ErrorContains(t, migrate(t.Context(), wrapped, dialect), "opened without sqlguard.Wrap")
			version, err := migrations.VersionDB(t.Context(), wrapped, dialect)
			require.NoError(t, err)
			require.Zero(t, version)
		}
		require.NoError(t, migrations.UpDB(t.Context(), db, dialect, migrations.WithLockTimeout(100*time.Millisecond)))
	})
}

// A refusing connector is one whose connections run no DO and no CREATE, as those of
// another wrapper may.
type refusing struct{ driver.Connector }

type refusingConn struct{ driver.Conn }

func (c refusing) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return refusingConn{conn}, err
}

func (c refusingConn) Prepare(query string) (driver.Stmt, error) {
	if !strings.HasPrefix(query, "SELECT") {
		return nil, errors.New("refused")
	}
	return c.Conn.Prepare(query)
}

func TestMigrationThatCannotReleaseItsLockEndsTheSession(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(servertest.MariaDB(t))
	require.NoError(t, err)
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	bad, good := sql.OpenDB(refusing{connector}), sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, errors.Join(bad.Close(), good.Close())) })

	require.ErrorContains(t, migrations.UpDB(t.Context(), bad, "mysql"), "refused")
	require.NoError(t, migrations.UpDB(t.Context(), good, "mysql", migrations.WithLockTimeout(time.Second)))
}
