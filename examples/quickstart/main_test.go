package main_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/examples/internal/exampletest"
	"github.com/go-fencing/fencing/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// What the README shows does what it says, on a database that has only the table.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	program, s := exampletest.Build(t), exampletest.Servers(t)
	conn, err := pgx.Connect(t.Context(), s.Postgres)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	_, err = conn.Exec(t.Context(), "CREATE TABLE inventory AS SELECT 'sku-42' AS sku, 10 AS stock")
	require.NoError(t, err)
	for range 2 { // the second time with the fence of the first
		out, code := exampletest.Run(t, program, s)
		require.Zero(t, code, out)
		require.Empty(t, out)
	}
	var stock, token int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT stock, token FROM inventory, fencing.fence WHERE resource = 'inventory:sku-42'").Scan(&stock, &token))
	require.Equal(t, 8, stock)
	require.Equal(t, 2, token)
}
