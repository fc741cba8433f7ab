package pgguard_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
)

func TestAdhocVariants(t *testing.T) {
	url := servertest.Postgres(t)
	ctx := context.Background()
	pool := newPool(t, url)
	install(t, pool)
	c, err := pgx.Connect(ctx, url+"&synchronous_commit=off")
	require.NoError(t, err)
	defer c.Close(ctx)
	_, err = c.Exec(ctx, "insert into item values ('x', 0)")
	require.NoError(t, err)
	_, err = c.Exec(ctx, "select fencing.raise('r',1,'n')")
	require.NoError(t, err)
	pid := c.PgConn().PID()
	finish := func() {
		_, err := c.Exec(ctx, sell, "x")
		require.NoError(t, err)
		_, err = c.Exec(ctx, "commit")
		require.NoError(t, err)
	}
	batch := func(sql string, args ...any) func() {
		return func() {
			var b pgx.Batch
			b.BeginTx(pgx.TxOptions{})
			b.Queue(sql, args...)
			br := c.SendBatch(ctx, &b)
			_, err := br.Exec()
			require.NoError(t, err)
			_, err = br.Exec()
			require.NoError(t, err)
			require.NoError(t, br.Close())
			finish()
		}
	}
	const receipt = ", pg_current_xact_id()::text, transaction_timestamp(), pg_postmaster_start_time()"
	cases := []struct {
		name string
		do   func()
	}{
		{"plain", func() { _, err := c.Exec(ctx, "begin"); require.NoError(t, err); finish() }},
		{"plain + select 1 separately", func() { _, err := c.Exec(ctx, "begin"); require.NoError(t, err); _, err = c.Exec(ctx, "select $1::int", 1); require.NoError(t, err); finish() }},
		{"batch select 1", batch("select $1::int", 1)},
		{"batch enter", batch("select fencing.enter($1,$2,$3,$4)", "r", int64(1), "n", nil)},
		{"batch enter receipt", batch("select fencing.enter($1,$2,$3,$4)"+receipt, "r", int64(1), "n", nil)},
		{"batch enter receipt idle", batch("select fencing.enter($1,$2,$3,$4)"+receipt, "r", int64(1), "n", 5000)},
		{"batch receipt only", batch("select $1::int"+receipt, 1)},
		{"simple enter", func() {
			r := c.PgConn().Exec(ctx, "begin;select fencing.enter('r',1,'n',5000)"+receipt)
			_, err := r.ReadAll()
			require.NoError(t, err)
			finish()
		}},
		{"simple begin;select 1", func() {
			r := c.PgConn().Exec(ctx, "begin;select 1")
			_, err := r.ReadAll()
			require.NoError(t, err)
			finish()
		}},
		{"simple begin;lock only", func() {
			r := c.PgConn().Exec(ctx, "begin;select pg_advisory_xact_lock_shared(1)")
			_, err := r.ReadAll()
			require.NoError(t, err)
			finish()
		}},
	}
	for range 3 {
		for _, v := range cases {
			for range 50 {
				v.do()
			}
			const n = 2000
			a, b := selfCPU(), backendCPU(pid)
			for range n {
				v.do()
			}
			t.Logf("%-30s client %.1f server %.1f µs", v.name, (selfCPU()-a)/n, (backendCPU(pid)-b)/n)
		}
	}
}
