package main_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/examples/accounts/db"
	"github.com/go-fencing/fencing/examples/internal/exampletest"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/pgguard"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// What sqlc's code takes and what a guard is.
var _ db.DBTX = (*pgguard.Guard)(nil)

func TestAccounts(t *testing.T) {
	t.Parallel()
	program := exampletest.Build(t)

	t.Run("S1_S38_S46_WhateverIsTriedNoMoneyIsMadeOrLost", func(t *testing.T) {
		t.Parallel()
		servers := exampletest.Servers(t)
		for range 2 { // the second time over what the first has left
			out, code := exampletest.Run(t, program, servers)
			require.Zero(t, code, out)
			require.Contains(t, out, "OK: ")
			require.NotContains(t, out, "WENT THROUGH")
			for _, line := range []string{
				`too long ago: refused: guard: fence of "account:alice" is stale: late holds token \d+, superseded by token \d+ of bank`,
				`around the guard: refused: ERROR: fencing: UPDATE of example_accounts\.accounts .*UF004`,
				`another account's lock: refused: pgguard: UPDATE of example_accounts\.accounts .*no fence for that row; entered were "account:bob"`,
			} {
				require.Regexp(t, regexp.MustCompile(line), out)
			}
			checkBooks(t, servers.Postgres)
		}
	})

	// The audit must be able to fail: here the database itself makes money.
	t.Run("ItSaysSoWhenMoneyIsMade", func(t *testing.T) {
		t.Parallel()
		servers := exampletest.Servers(t)
		conn := connect(t, servers.Postgres)
		_, err := conn.Exec(t.Context(), `
			CREATE FUNCTION interest() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN
				NEW.balance := NEW.balance + 1;
				RETURN NEW;
			END $$;
			CREATE FUNCTION sabotage() RETURNS event_trigger LANGUAGE plpgsql AS $$
			BEGIN
				IF to_regclass('example_accounts.accounts') IS NOT NULL THEN
					CREATE OR REPLACE TRIGGER interest BEFORE UPDATE ON example_accounts.accounts FOR EACH ROW EXECUTE FUNCTION public.interest();
				END IF;
			END $$;
			CREATE EVENT TRIGGER sabotage ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION sabotage()`)
		require.NoError(t, err)
		out, code := exampletest.Run(t, program, servers)
		require.Equal(t, 1, code, out)
		require.Contains(t, out, "BROKEN: ")
		require.NotContains(t, out, "OK: ")
	})

	t.Run("ItStartsItsOwnServers", func(t *testing.T) {
		t.Parallel()
		out, code := exampletest.RunAlone(t, program)
		require.Zero(t, code, out)
		require.Contains(t, out, "OK: ")
	})

	t.Run("AnAddressThatCannotBeReadIsNotRepeated", func(t *testing.T) {
		t.Parallel()
		exampletest.RequireSecrecy(t, program)
	})
}

// checkBooks looks at what the program has left in the database.
func checkBooks(t *testing.T, url string) {
	t.Helper()
	conn := connect(t, url)
	var total, lowest int64
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT sum(balance), min(balance) FROM example_accounts.accounts").Scan(&total, &lowest))
	require.EqualValues(t, 300, total)
	require.GreaterOrEqual(t, lowest, int64(0))

	var applied, claimed int
	require.NoError(t, conn.QueryRow(t.Context(), `
		SELECT count(*), count(operation) FROM example_accounts.transfers LEFT JOIN fencing.operation ON operation = 'transfer:' || id
		 WHERE NOT starts_with(id, 'sweep-')`).Scan(&applied, &claimed))
	require.Positive(t, applied)
	require.Equal(t, applied, claimed, "each transfer is applied together with its claim")

	_, err := conn.Exec(t.Context(), "UPDATE example_accounts.accounts SET balance = 0")
	require.ErrorContains(t, err, "UF004", "the protection is there to stay")
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // its database is about to be dropped
	return conn
}
