package pgguard_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/pgguard"
)

// The functions of the schema look at other sessions as their owner, which as an
// ordinary role sees nothing of those of the service.
func TestBlockedRaiseNamesWhatTheRoleMaySeeAndTheOwnerOfTheSchemaMayNot(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	_, owner := db.ordinary(t)
	t.Cleanup(func() {
		_, err := db.pool.Exec(context.Background(), "drop schema fencing cascade")
		require.NoError(t, err)
	})
	db.must(`do $$ declare o text; begin
		for o in select format('function %s', p.oid::regprocedure) from pg_proc p where pronamespace = 'fencing'::regnamespace
		   union all select format('table %s', c.oid::regclass) from pg_class c where relnamespace = 'fencing'::regnamespace and relkind = 'r'
		loop execute format('alter %s owner to %I', o, '` + owner + `'); end loop; end $$`)
	url, _ := db.ordinary(t)
	pool := newPool(t, url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "worker-7" })
	g := newGuard(t, pool, pgguard.WithLockTimeout(200*time.Millisecond))
	ctx, _ := db.raised("r", 33, "A")
	tx, err := newGuard(t, pool).Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()

	err = g.Raise(t.Context(), fence("r", 34, "B"))
	var blocked *pgguard.BlockedError
	require.ErrorAs(t, err, &blocked)
	require.EqualValues(t, tx.Conn().PgConn().PID(), blocked.PID)
	require.Equal(t, "worker-7", blocked.Application)
	require.Equal(t, "idle in transaction", blocked.State)
	require.WithinDuration(t, time.Now(), blocked.Since, time.Minute)
	require.ErrorContains(t, err, "the fence was not raised")
}
