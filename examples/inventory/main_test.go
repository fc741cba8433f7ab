package main_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/examples/internal/exampletest"
	"github.com/go-fencing/fencing/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestInventory(t *testing.T) {
	t.Parallel()
	program := exampletest.Build(t)

	t.Run("S1_PausedWorkersAreRefusedAndNothingIsOversold", func(t *testing.T) {
		t.Parallel()
		servers := exampletest.Servers(t)
		for range 2 { // the second time over what the first has left
			out, code := exampletest.Run(t, program, servers)
			require.Zero(t, code, out)
			require.Contains(t, out, "20 of 20 units sold, 0 left; 0 orders for a unit that was sold already, 0 from a buyer who had one")
			require.Contains(t, out, "OK: not oversold, no duplicate order")
			for _, worker := range []string{"worker-1", "worker-2"} {
				require.Contains(t, out, worker+` refused: guard: fence of "inventory:sku-42" is stale: `+worker+" holds token")
			}
			require.Equal(t, sale{left: 0, orders: 20, units: 20, buyers: 20}, look(t, servers.Postgres))
		}
	})

	t.Run("S1_UnderTheLockAloneUnitsAreSoldTwice", func(t *testing.T) {
		t.Parallel()
		servers := exampletest.Servers(t)
		out, code := exampletest.Run(t, program, servers, "-unguarded")
		require.Equal(t, 1, code, out)
		require.Contains(t, out, "BROKEN: oversold")
		require.NotContains(t, out, "refused")
		sold := look(t, servers.Postgres)
		require.GreaterOrEqual(t, sold.orders-sold.units, 2, "both paused workers sell the unit that another has sold: %+v", sold)
	})

	t.Run("ItStartsItsOwnServers", func(t *testing.T) {
		t.Parallel()
		out, code := exampletest.RunAlone(t, program)
		require.Zero(t, code, out)
		require.Contains(t, out, "OK: not oversold, no duplicate order")
	})

	t.Run("AnAddressThatCannotBeReadIsNotRepeated", func(t *testing.T) {
		t.Parallel()
		exampletest.RequireSecrecy(t, program)
	})
}

type sale struct{ left, orders, units, buyers int }

func look(t *testing.T, url string) (s sale) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT sum(stock) FROM example_inventory.inventory").Scan(&s.left))
	require.NoError(t, conn.QueryRow(t.Context(),
		"SELECT count(*), count(DISTINCT unit), count(DISTINCT buyer) FROM example_inventory.orders").Scan(&s.orders, &s.units, &s.buyers))
	return s
}
