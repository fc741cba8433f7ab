package stack_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/integration/stack"
)

func TestMain(m *testing.M) { stack.Main(m) }

func TestRedisKeepsWhatWasSavedAndForgetsTheRest(t *testing.T) {
	t.Parallel()
	r := stack.NewRedis(t)
	ctx := t.Context()
	set := func(key string) { require.NoError(t, r.Client().Set(ctx, key, "1", 0).Err()) }
	require.NoError(t, r.Client().Save(ctx).Err(), "of nothing")
	set("saved")
	require.NoError(t, r.Client().Save(ctx).Err())
	set("not saved")
	addr := r.Addr()

	snapshot := r.Snapshot()
	require.Equal(t, addr, r.Addr())
	require.Equal(t, []string{"saved"}, keys(t, r))

	set("later")
	require.NoError(t, r.Client().Save(ctx).Err())
	r.Kill()
	r.Restart()
	require.ElementsMatch(t, []string{"saved", "later"}, keys(t, r))
	r.Restore(snapshot)
	require.Equal(t, []string{"saved"}, keys(t, r))
	r.Restore("")
	require.Empty(t, keys(t, r))
	require.Equal(t, addr, r.Addr())
}

func keys(t *testing.T, r *stack.Redis) []string {
	t.Helper()
	found, err := r.Client().Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	return found
}

func TestReplicaMissesWhatCameAfterTheCut(t *testing.T) {
	t.Parallel()
	master := stack.NewRedis(t)
	replica := master.Replica()
	ctx := t.Context()
	require.NoError(t, master.Client().Set(ctx, "n", "1", 0).Err())
	replica.AwaitSame(master, "n")
	replica.CutLink()
	require.NoError(t, master.Client().Set(ctx, "n", "2", 0).Err())
	require.Equal(t, "1", replica.Client().Get(ctx, "n").Val())
	require.Error(t, replica.Client().Set(ctx, "n", "3", 0).Err(), "a replica is read-only")
	replica.Promote()
	require.Equal(t, "1", replica.Client().Get(ctx, "n").Val())
	require.NoError(t, replica.Client().Set(ctx, "n", "3", 0).Err())
	require.Equal(t, "2", master.Client().Get(ctx, "n").Val(), "the old master goes on by itself")
}

func TestPauseHangsAServerAndResumeLetsItGoOn(t *testing.T) {
	t.Parallel()
	r := stack.NewRedis(t)
	client := r.Client()
	require.NoError(t, client.Ping(t.Context()).Err())
	r.Pause()
	answer := make(chan error, 1)
	go func() { answer <- client.Ping(context.Background()).Err() }()
	select {
	case err := <-answer:
		require.Fail(t, "it answered", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	r.Resume()
	require.NoError(t, <-answer)
	r.Pause()
	r.Kill() // also what is frozen
	r.Restart()
	require.NoError(t, r.Client().Ping(t.Context()).Err())
}

func TestPostgresComesBackWithWhatWasCommitted(t *testing.T) {
	t.Parallel()
	p := stack.NewPostgres(t)
	url := p.NewDatabase()
	run := func(sql string) {
		_, err := p.Pool(url).Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	count := func() (n int) {
		require.NoError(t, p.Pool(url).QueryRow(t.Context(), "SELECT count(*) FROM kept").Scan(&n))
		return n
	}
	run("CREATE TABLE kept (n int)")
	run("INSERT INTO kept VALUES (1)")
	snapshot := p.Snapshot()
	run("INSERT INTO kept VALUES (2)")
	p.Kill()
	p.Restart()
	require.Equal(t, 2, count())
	p.Restore(snapshot)
	require.Equal(t, 1, count())
	run("INSERT INTO kept VALUES (3)")
	require.Equal(t, 2, count())
}
