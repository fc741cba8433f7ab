package demo_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/demo"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sqlguard"
)

// late lets a worker find its lease lost whenever it checks it, if patient only as
// long as that is the demo's first TTL.
func late(orders io.Reader, replies io.Writer, patient bool) (io.Reader, io.Writer) {
	l := &lateness{replies: replies, patient: patient}
	return io.TeeReader(orders, &l.orders), l
}

type lateness struct {
	orders  bytes.Buffer // so far
	replies io.Writer
	patient bool
}

func (l *lateness) Write(reply []byte) (int, error) {
	setup, orders, _ := strings.Cut(l.orders.String(), "\n")
	lines := strings.Split(strings.TrimSpace(orders), "\n")
	if last := lines[len(lines)-1]; strings.Contains(last, `"do":"check"`) && (!l.patient || strings.Contains(setup, `"ttl":1000000000,`)) {
		reply = []byte(`{"error":{"text":"lock: lease lost","lost":true}}` + "\n")
	}
	if _, err := l.replies.Write(reply); err != nil {
		return 0, err
	}
	return len(reply), nil
}

// On a busy machine a second may pass before the worker is frozen.
func TestAnActWhoseLeaseIsLostTooEarlyIsPlayedAgain(t *testing.T) {
	t.Parallel()
	v, out, err := play(t, demo.Options{Store: demo.SQLite}, "late-worker")
	require.NoError(t, err, out)
	require.True(t, v.OK, out)
	require.Equal(t, 2, strings.Count(out, "Act 1: the lock alone"), out)
	require.Equal(t, 1, strings.Count(out, "has lost its lease too early, on a busy machine: the act begins again, with leases of 2s"), out)
	require.Equal(t, 1, strings.Count(out, "Act 2: "), out)
}

func TestAPlayWhoseLeasesNeverHoldEnds(t *testing.T) {
	t.Parallel()
	_, out, err := play(t, demo.Options{Store: demo.SQLite}, "always-late-worker")
	require.ErrorIs(t, err, demo.ErrUnfinished)
	require.EqualError(t, err, "not played to its end: act 1: worker A cannot check: lock: lease lost", out)
	require.Equal(t, 4, strings.Count(out, "Act 1: the lock alone"), out)
	require.NotContains(t, out, "Act 2")
}

// The driver would say no more than that a context has ended.
func TestAWorkerThatReadsWithoutItsLeaseSaysSo(t *testing.T) {
	t.Parallel()
	addr, stop, err := localserver.StartMiniredis()
	require.NoError(t, err)
	t.Cleanup(stop)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	file := filepath.Join(t.TempDir(), "inventory.db")
	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, migrations.UpDB(t.Context(), db, sqlguard.SQLite))
	_, err = db.ExecContext(t.Context(), "CREATE TABLE inventory (sku text PRIMARY KEY, stock integer NOT NULL); INSERT INTO inventory VALUES ('sku-42', 100)")
	require.NoError(t, err)

	in, orders := io.Pipe()
	replies, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := demo.Work(t.Context(), in, out)
		_ = out.CloseWithError(io.ErrUnexpectedEOF) // there will be no more replies
		ended <- err
	}()
	decoder := json.NewDecoder(replies)
	tell := func(do string) (reply struct {
		Stock int
		Error *struct {
			Text string
			Lost bool
		}
	},
	) {
		_, err := fmt.Fprintf(orders, `{"do":%q}`+"\n", do)
		require.NoError(t, err)
		require.NoError(t, decoder.Decode(&reply))
		return reply
	}
	_, err = fmt.Fprintf(orders, `{"name":"A","redis":"redis://%s","prefix":"late","ttl":%d,"store":"sqlite","sqlite":%q}`+"\n", addr, 6*time.Second, file)
	require.NoError(t, err)
	require.Equal(t, "read without a lease", tell("read").Error.Text, "a reply that has no fence")
	require.Nil(t, tell("acquire").Error)
	require.Equal(t, 100, tell("read").Stock)

	require.NoError(t, rdb.FlushAll(t.Context()).Err())
	lost := false
	for tick := time.NewTicker(20 * time.Millisecond); !lost; <-tick.C { // until it asks Redis for more time
		r := tell("check")
		lost = r.Error != nil && r.Error.Lost
	}
	r := tell("read")
	require.NotNil(t, r.Error)
	require.True(t, r.Error.Lost, r.Error.Text)
	require.NoError(t, orders.Close())
	require.NoError(t, <-ended)
}
