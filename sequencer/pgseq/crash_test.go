package pgseq_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/migrations"
)

// handedOut collects tokens and fails the test at the first repeated one.
type handedOut struct {
	mu       sync.Mutex
	tokens   map[guard.Token]bool
	greatest guard.Token
}

func (h *handedOut) add(t *testing.T, token guard.Token) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tokens[token] {
		t.Errorf("token %d was handed out twice", token)
	}
	h.tokens[token] = true
	h.greatest = max(h.greatest, token)
	return len(h.tokens)
}

func TestACrashRepeatsNoToken(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t, localserver.PostgresOptions{})
	require.NoError(t, migrations.Up(t.Context(), connect(t, server.URL(""))))
	h := &handedOut{tokens: make(map[guard.Token]bool)}
	for range 3 {
		s := open(t, connect(t, server.URL("")))
		enough := make(chan struct{}, 1000)
		ctx := context.WithoutCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					token, err := s.Next(ctx, resource, 0)
					if err != nil {
						return // the crash: this call was under way, or came after it
					}
					h.add(t, token)
					select {
					case enough <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 40 {
			<-enough
		}
		require.NoError(t, server.Kill())
		wg.Wait()
		require.NoError(t, server.Restart(t.Context()))
		before := h.greatest
		token := next(t, open(t, connect(t, server.URL(""))), 0)
		require.Greater(t, token, before)
		h.add(t, token)
	}
}

// S39: with synchronous_commit off a crash loses commits that were acknowledged.
// The control shows that a crash did lose one, right behind the token.
func TestS39_ATokenIsDurableThoughTheSessionsCommitsAreNot(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t, localserver.PostgresOptions{Settings: map[string]string{
		"wal_writer_delay": "10s", // it still may flush just then, hence the tries
	}})
	setup := connect(t, server.URL(""))
	require.NoError(t, migrations.Up(t.Context(), setup))
	_, err := setup.Exec(t.Context(), "CREATE TABLE control (n bigint)")
	require.NoError(t, err)

	lost := false
	for try := 0; try < 6 && !lost; try++ {
		careless := connect(t, server.URL(""), "synchronous_commit=off")
		token := next(t, open(t, careless), 0)
		_, err = careless.Exec(t.Context(), "INSERT INTO control VALUES ($1)", int64(token))
		require.NoError(t, err)
		require.NoError(t, server.Kill())
		require.NoError(t, server.Restart(t.Context()))

		after := connect(t, server.URL(""))
		require.Equal(t, token+1, next(t, open(t, after), 0))
		require.NoError(t, after.QueryRow(t.Context(), "SELECT NOT EXISTS (SELECT FROM control WHERE n = $1)", int64(token)).Scan(&lost))
	}
	require.True(t, lost, "no crash lost anything, so this test proves nothing")
}

func TestACallCanBeCancelledWhileItWaitsForAnother(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool := connect(t, url)
	s := open(t, pool)
	require.EqualValues(t, 1, next(t, s, 0))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	var held int64
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT fencing.next_token($1)", resource).Scan(&held))

	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := s.Next(ctx, resource, 0); failed <- err }()
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())").Scan(&waiting))
		return waiting == 1
	}, 10*time.Second, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.NoError(t, tx.Rollback(t.Context()))
	// The server may learn of it late and still serve the cancelled call: a gap.
	token := next(t, s, 0)
	require.GreaterOrEqual(t, token, guard.Token(2))
	require.Greater(t, next(t, s, 0), token)
}
