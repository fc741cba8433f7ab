package php_test

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/examples/internal/exampletest"
	"github.com/go-fencing/fencing/examples/internal/servers"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/migrations"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestPHPAgreesWithTheVectors(t *testing.T) {
	t.Parallel()
	php := php(t)
	out, code := exampletest.Run(t, php, newSide(t).Servers, "testdata/vectors.php", "../../docs/testdata", "../..")
	require.Zero(t, code, out)
	require.Regexp(t, `^OK: \d{4} checks\n$`, out)
}

func TestTheScriptsAreCopiesOfTheShippedOnes(t *testing.T) {
	t.Parallel()
	var v struct {
		Scripts map[string]struct{ Files []string }
	}
	data, err := os.ReadFile("../../docs/testdata/scripts.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &v))
	copies, err := filepath.Glob("lua/*.lua")
	require.NoError(t, err)
	require.Len(t, copies, 5)
	const folder = "lock/redislock/"
	for _, path := range copies {
		files := v.Scripts[strings.TrimSuffix(filepath.Base(path), ".lua")].Files
		switch {
		case files == nil: // it is not a script alone
			files = []string{folder + filepath.Base(path)}
		case files[0] == folder+"publish.lua": // which is another one in Cluster
			files = files[1:]
		}
		var want strings.Builder
		for _, file := range files {
			source, err := os.ReadFile("../../" + file)
			require.NoError(t, err)
			want.Write(source)
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want.String(), string(got), "in the root of the repository: cat %s > examples/php/%s", strings.Join(files, " "), path)
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	php := php(t)
	s := exampletest.Servers(t)
	out, code := exampletest.Run(t, php, s, "demo.php")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "run fencectl migrate up")

	pool, err := pgxpool.New(t.Context(), s.Postgres)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, migrations.Up(t.Context(), pool))
	for range 2 { // the second time over what the first has left
		out, code = exampletest.Run(t, php, s, "demo.php")
		require.Zero(t, code, out)
		require.Contains(t, out, `B waits: fencing: "example-php:sku-42" is held by worker A`)
		require.Contains(t, out, "fence of 'example-php:sku-42' is stale")
		require.Contains(t, out, "OK: 80 sold, 20 of 100 left")
		require.NotContains(t, out, "WENT THROUGH")
	}

	for want, at := range map[string]servers.Servers{
		"set REDIS_URL to redis://":                              {Postgres: s.Postgres},
		"set DATABASE_URL to postgres://":                        {Redis: s.Redis},
		"REDIS_URL is not of the form redis://":                  {Postgres: s.Postgres, Redis: "http://app:hun-ter2@127.0.0.1:1"},
		"DATABASE_URL is not of the form":                        {Postgres: "postgres://app:hun/ter2@127.0.0.1:1", Redis: s.Redis},
		"no Redis at 127.0.0.1:1, where REDIS_URL says":          {Postgres: s.Postgres, Redis: "redis://app:hun-ter2@127.0.0.1:1"},
		"no Redis at tls://127.0.0.1:1, where REDIS_URL says":    {Postgres: s.Postgres, Redis: "rediss://app:hun-ter2@127.0.0.1:1"},
		"invalid connection option \"an_option_that_is_passed\"": {Postgres: option(t, s.Postgres, "an_option_that_is_passed", "it's"), Redis: s.Redis},
	} {
		out, code = exampletest.Run(t, php, at, "demo.php")
		require.Equal(t, 1, code, out)
		require.Contains(t, out, want)
		require.NotContains(t, out, "hun")
		require.NotContains(t, out, "ter2")
	}
}

// option adds an option to the URL of a database, in place of what it says of it.
func option(t *testing.T, database, name, value string) string {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// S1, S2, S13: Redis forgets, and both believe that they hold the lock.
func TestS1_S2_S13_TheStoreRefusesTheOneThatIsLate(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	w := start(t, s.Servers)
	inPHP := parse(t, w.must(t, command{"do": "acquire", "resource": resource}))
	for i := range 3 { // so that a counter that began anew is behind
		s.forget(t)
		l, err := s.locker.TryAcquire(t.Context(), resource)
		require.NoError(t, err)
		require.Greater(t, l.Fence().Token, inPHP.Token)
		require.Contains(t, w.fails(t, command{"do": "write", "resource": resource, "sql": update}, "Stale"), "UF001")
		require.NoError(t, s.write(l.Context()))

		s.forget(t)
		inPHP = parse(t, w.must(t, command{"do": "acquire", "resource": resource}))
		require.Greater(t, inPHP.Token, l.Fence().Token, "PHP repairs the counter")
		require.ErrorIs(t, s.write(guard.NewContext(t.Context(), l.Fence())), guard.ErrStale) // however soon the lease notices
		require.EqualValues(t, 1, w.must(t, command{"do": "write", "resource": resource, "sql": update}))
		require.ErrorIs(t, l.Release(t.Context()), lock.ErrLost)
		require.Equal(t, 100-2*(i+1), s.left(t))
	}
	require.Equal(t, inPHP.Token.String(), s.rdb.Get(t.Context(), rediskeys.Default().Counter(resource)).Val())
}

// The lease is over, and the next holder waits for the transaction of the last one.
func TestS4_ARaiseWaitsForATransactionInTheOtherLanguage(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	w := start(t, s.Servers)
	l, err := s.locker.TryAcquire(t.Context(), resource)
	require.NoError(t, err)
	tx, err := s.store.Begin(l.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }() // or a failure would wait for it when the pool is closed
	_, err = tx.Exec(t.Context(), update)
	require.NoError(t, err)
	s.forget(t)
	raised := make(chan answer, 1)
	go func() { raised <- w.do(t, command{"do": "acquire", "resource": resource}) }()
	require.Eventually(t, func() bool {
		var waiting bool
		err := s.pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&waiting)
		return err == nil && waiting
	}, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	a := <-raised
	require.Empty(t, a.Error, a.Message)
	require.Equal(t, 99, s.left(t))
}

// An object of the client serves coroutines that take turns.
func TestTheClientInPHPKeepsNothingBetweenCalls(t *testing.T) {
	t.Parallel()
	php := php(t)
	s := newSide(t)
	_, err := s.pool.Exec(t.Context(), "INSERT INTO stock VALUES ('sku-43', 100)") // the trigger refuses it
	require.Error(t, err)
	f, err := s.store.Issue(t.Context(), "inventory:sku-43", "nonce-a", "")
	require.NoError(t, err)
	_, err = s.store.Exec(guard.NewContext(t.Context(), f), "INSERT INTO stock VALUES ('sku-43', 100)")
	require.NoError(t, err)
	out, code := exampletest.Run(t, php, s.Servers, "testdata/fibers.php")
	require.Zero(t, code, out)
	require.Contains(t, out, "OK: inventory:sku-42 inventory:sku-43")
	var left int
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT sum(left_over) FROM stock").Scan(&left))
	require.Equal(t, 198, left)
}

func TestAFenceTravelsBetweenTheLanguages(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	w := start(t, s.Servers)
	l, err := s.locker.AcquireAll(t.Context(), resource, "склад: 42; {x}")
	require.NoError(t, err)
	var texts []string
	for _, f := range guard.Fences(l.Context()) {
		text, err := f.MarshalText()
		require.NoError(t, err)
		texts = append(texts, string(text))
	}
	require.Len(t, texts, 2)
	require.EqualValues(t, 1, w.must(t, command{"do": "writeUnder", "fence": texts[0], "sql": update}))
	require.EqualValues(t, 1, w.must(t, command{"do": "writeSeveral", "fences": texts, "sql": update}))
	w.fails(t, command{"do": "writeUnder", "fence": texts[1], "sql": update}, "Unguarded")
	w.fails(t, command{"do": "writeUnder", "fence": resource + ";99;n;", "sql": update}, "NotRaised")

	f := parse(t, w.must(t, command{"do": "acquire", "resource": "another"}))
	require.NoError(t, s.store.InTx(guard.NewContext(t.Context(), f), func(pgx.Tx) error { return nil }))
	require.NoError(t, l.Release(t.Context()))
	require.Equal(t, 98, s.left(t))
}

// S23 and what PDO does not tell.
func TestS23_WhatPHPHearsOfACommit(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	_, err := s.pool.Exec(t.Context(), `
		CREATE TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
		CREATE TABLE deadly (n int);
		CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER die AFTER INSERT ON deadly DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()`)
	require.NoError(t, err)
	w := start(t, s.Servers)
	w.must(t, command{"do": "acquire", "resource": resource})
	write := func(do, sql string) command { return command{"do": do, "resource": resource, "sql": sql} }

	require.Contains(t, w.fails(t, write("writeAfterAnError", update), "PDOException"), "25P02")
	require.Contains(t, w.fails(t, write("write", "INSERT INTO late VALUES (1), (1)"), "PDOException"), "23505")
	require.Contains(t, w.fails(t, write("writeAndEnd", update), "LogicException"), "ended the transaction")
	require.Equal(t, 100, s.left(t))
	require.EqualValues(t, 1, w.must(t, write("write", update)))

	other, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(t.Context()) }()
	_, err = other.Exec(t.Context(), "LOCK TABLE late")
	require.NoError(t, err)
	require.Contains(t, w.fails(t, write("write", "LOCK TABLE late NOWAIT"), "PDOException"), "55P03", "no raise is blocked")
	require.NoError(t, other.Rollback(t.Context()))
	w.fails(t, write("write", "INSERT INTO deadly VALUES (1)"), "CommitUnknown")
}

func TestWhatPHPRefusesByItself(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	w := start(t, s.Servers, "TTL_MS=200")
	require.Contains(t, w.fails(t, command{"do": "prefixed", "resource": resource}, "LogicException"), "OPT_PREFIX")
	require.Contains(t, w.fails(t, command{"do": "acquireInside", "resource": resource}, "LogicException"), "before the transaction begins")
	require.Contains(t, w.fails(t, command{"do": "acquire", "resource": ""}, "InvalidArgumentException"), "1 to 512 bytes")
	require.Zero(t, s.rdb.Exists(t.Context(), rediskeys.Default().Lock(resource)).Val(), "what was granted is given back")

	f := w.must(t, command{"do": "acquire", "resource": resource, "wait": 20})
	require.Eventually(t, func() bool { return s.rdb.Exists(t.Context(), rediskeys.Default().Lock(resource)).Val() == 0 }, 20*time.Second, 5*time.Millisecond)
	w.fails(t, command{"do": "write", "resource": resource, "sql": update}, "Lost")
	w.fails(t, command{"do": "renew", "resource": resource}, "Lost")
	w.fails(t, command{"do": "release", "resource": resource}, "Lost")

	l, err := s.locker.TryAcquire(t.Context(), resource)
	require.NoError(t, err)
	require.Contains(t, w.fails(t, command{"do": "writeUnder", "fence": f, "sql": update}, "Stale"), "UF001", "whatever the clocks say")
	tx, err := s.store.Begin(guard.NewContext(t.Context(), l.Fence()))
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	s.forget(t)
	require.Contains(t, w.fails(t, command{"do": "acquire", "resource": resource}, "Blocked"), `"pid"`)
	require.Zero(t, s.rdb.Exists(t.Context(), rediskeys.Default().Lock(resource)).Val())
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 100, s.left(t))
}

// Two processes of PHP and Go count together, each step from what it has read.
func TestNoUpdateIsLostBetweenTheLanguages(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	_, err := s.pool.Exec(t.Context(), "ALTER TABLE stock DISABLE TRIGGER USER") // the lock and the fences alone
	require.NoError(t, err)
	const times = 25
	var all sync.WaitGroup
	for range 2 {
		w := start(t, s.Servers)
		all.Go(func() {
			if a := w.do(t, command{"do": "add", "resource": resource, "sku": "sku-42", "times": times}); a.Error != "" {
				t.Error(a.Message)
			}
		})
	}
	all.Go(func() {
		for range times {
			err := s.locker.Do(t.Context(), resource, func(ctx context.Context) error {
				return s.store.InTx(ctx, func(tx pgx.Tx) error {
					var left int
					if err := tx.QueryRow(ctx, "SELECT left_over FROM stock WHERE sku = 'sku-42'").Scan(&left); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "UPDATE stock SET left_over = $1 WHERE sku = 'sku-42'", left+1)
					return err
				})
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	require.Equal(t, 100+3*times, s.left(t))
}
