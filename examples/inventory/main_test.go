package main_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestInventory(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "inventory.exe")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))

	t.Run("S1_PausedWorkersAreRefusedAndNothingIsOversold", func(t *testing.T) {
		t.Parallel()
		addresses := servers(t)
		for range 2 { // the second time over what the first has left
			out, code := run(t, program, addresses...)
			require.Zero(t, code, out)
			require.Contains(t, out, "20 of 20 units sold, 0 left; 0 orders for a unit that was sold already, 0 from a buyer who had one")
			require.Contains(t, out, "OK: not oversold, no duplicate order")
			for _, worker := range []string{"worker-1", "worker-2"} {
				require.Contains(t, out, worker+` refused: guard: fence of "inventory:sku-42" is stale: `+worker+" holds token")
			}
			require.Equal(t, sale{left: 0, orders: 20, units: 20, buyers: 20}, look(t, addresses[1]))
		}
	})

	t.Run("S1_UnderTheLockAloneUnitsAreSoldTwice", func(t *testing.T) {
		t.Parallel()
		addresses := servers(t)
		out, code := run(t, program, append(addresses, "-unguarded")...)
		require.Equal(t, 1, code, out)
		require.Contains(t, out, "BROKEN: oversold")
		require.NotContains(t, out, "refused")
		sold := look(t, addresses[1])
		require.GreaterOrEqual(t, sold.orders-sold.units, 2, "both paused workers sell the unit that another has sold: %+v", sold)
	})

	t.Run("ItStartsItsOwnServers", func(t *testing.T) {
		t.Parallel()
		out, code := run(t, program)
		if strings.Contains(out, localserver.ErrNotInstalled.Error()) && os.Getenv("CI") != "true" {
			t.Skip(out)
		}
		require.Zero(t, code, out)
		require.Contains(t, out, "OK: not oversold, no duplicate order")
	})

	t.Run("AnAddressThatCannotBeReadIsNotRepeated", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{
			{"-postgres", "postgres://app:hun/ter2@127.0.0.1/db", "-redis", "redis://127.0.0.1:1/0"},
			{"-postgres", "host=127.0.0.1 password=hun ter2", "-redis", "redis://127.0.0.1:1/0"},
			{"-postgres", "postgres://127.0.0.1:1/db", "-redis", "redis://:hun/ter2@127.0.0.1/0"},
		} {
			out, code := run(t, program, args...)
			require.Equal(t, 1, code, out)
			require.Contains(t, out, "is not of the form")
			require.NotContains(t, out, "hun")
			require.NotContains(t, out, "ter2")
		}
	})
}

// servers returns the flags for a database and a Redis of the test's own: all
// sales are under one lock.
func servers(t *testing.T) []string {
	t.Helper()
	return []string{"-postgres", servertest.Postgres(t), "-redis", servertest.NewRedis(t, localserver.RedisOptions{}).URL()}
}

// run runs the program without the addresses that the environment may have, and
// returns what it printed and its exit code.
func run(t *testing.T, program string, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its workers then
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), "POSTGRES_URL=", "REDIS_URL=")
	text, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		require.NoError(t, err)
	}
	return string(text), cmd.ProcessState.ExitCode()
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
