package localserver_test

import (
	"database/sql"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
)

func TestMariaDBTakesSettingsAndKeepsItsDataThroughAKill(t *testing.T) {
	t.Parallel()
	s, err := localserver.StartMariaDB(t.Context(), localserver.MariaDBOptions{Settings: map[string]string{"max-connections": "17"}})
	skipUnlessInstalled(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	query := func(dsn, query string) (value string) {
		t.Helper()
		db, err := sql.Open("mysql", dsn)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&value))
		return value
	}
	require.Equal(t, "17", query(s.DSN(""), "SELECT @@max_connections"))
	db, err := sql.Open("mysql", s.DSN("mysql"))
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE kept")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.NoError(t, s.Kill())
	require.Zero(t, s.PID())
	require.NoError(t, s.Restart(t.Context()))
	require.Equal(t, "kept", query(s.DSN("kept"), "SELECT DATABASE()"))
	dir := s.Dir()
	require.NoError(t, s.Stop())
	require.NoDirExists(t, dir)
}
