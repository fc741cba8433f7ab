package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

func TestLs(t *testing.T) {
	t.Parallel()
	p := newPatient(t, migrated(t))
	require.Equal(t, "nothing\n", ok(t, append([]string{"ls"}, p.args...)...))
	b, err := redislock.New(p.rdb)
	require.NoError(t, err)
	for _, resource := range []string{"inventory:*", "inventory:[x]", "order:1"} {
		_, err := b.Acquire(t.Context(), lock.Request{Resource: resource, Nonce: "secret-nonce", Holder: "web-1", TTL: time.Minute, After: 40})
		require.NoError(t, err)
	}
	p.exec(t, "select fencing.raise('inventory:*', 41, 'secret-nonce', 'web-1'), fencing.raise('inventory:2', 9007199254740993, 'n', '')")
	p.exec(t, "select fencing.lease_acquire('order:2', 'n', 'web-2', 60000)")

	text := ok(t, append([]string{"ls"}, p.args...)...)
	require.Regexp(t, `(?m)^RESOURCE +FENCE +RAISED BY +AT +LOCK +HELD BY +FOR$`, text)
	require.Regexp(t, `(?m)^inventory:\* +41 +web-1 +20\S+Z +41 +web-1 +5\d\.\d*s$`, text)
	require.Regexp(t, `(?m)^inventory:2 +9007199254740993 +- +20\S+Z +- +- +-$`, text)
	require.Regexp(t, `(?m)^order:1 +- +- +- +41 +web-1 +\S+$`, text)
	require.Regexp(t, `(?m)^order:2 +- +- +- +\d+ +web-2 +\S+$`, text)
	require.NotContains(t, text, "secret-nonce")

	p.exec(t, "select fencing.raise(' spaced:1 ', 1, 'n', ' web 3'), fencing.raise('spaced:1', 1, 'n', 'web 3')")
	text = ok(t, append([]string{"ls"}, p.args...)...)
	require.Regexp(t, `(?m)^" spaced:1 " +1 +" web 3" `, text)
	require.Regexp(t, `(?m)^spaced:1 +1 +web 3 `, text)

	var all []struct {
		Resource string
		Fence    *struct{ Token string }
		Lock     *struct {
			Token     string
			Members   int
			Remaining int64 `json:"remaining_ms"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(ok(t, append([]string{"ls", "inventory:", "--json"}, p.args...)...)), &all))
	require.Len(t, all, 3)
	require.Equal(t, "9007199254740993", all[1].Fence.Token)
	require.Equal(t, 1, all[2].Lock.Members)
	require.Positive(t, all[2].Lock.Remaining)

	// Of a prefix nothing is a pattern.
	require.Equal(t, 2, strings.Count(ok(t, append([]string{"ls", "inventory:*"}, p.args...)...), "\n"))
	require.Equal(t, 2, strings.Count(ok(t, append([]string{"ls", "inventory:["}, p.args...)...), "\n"))
	require.Equal(t, "nothing\n", ok(t, append([]string{"ls", "inventory:?"}, p.args...)...))

	r := run(t, append([]string{"ls", "--limit=2"}, p.args...)...)
	require.Equal(t, 0, r.code)
	require.Equal(t, 3, strings.Count(r.stdout, "\n"), r.stdout)
	require.Contains(t, r.stderr, "more than 2")
	require.JSONEq(t, "[]", ok(t, append([]string{"ls", "nobody", "--json"}, p.args...)...))
}

// However many locks there are, those that are shown are the first ones, and what is
// no lock is in nobody's way.
func TestLsOfManyLocks(t *testing.T) {
	t.Parallel()
	url := servertest.NewRedis(t, localserver.RedisOptions{}).URL()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	for i := range 100 {
		_, err := b.Acquire(t.Context(), lock.Request{Resource: fmt.Sprintf("r:%02d", i), Nonce: "n", Holder: "web-1", TTL: time.Minute})
		require.NoError(t, err)
	}
	released := lock.Request{Resource: "r:000", Nonce: "n", Holder: "web-1", TTL: time.Minute}
	_, err = b.Acquire(t.Context(), released)
	require.NoError(t, err)
	require.NoError(t, b.Release(t.Context(), released))
	require.EqualValues(t, 1, rdb.Exists(t.Context(), rediskeys.Default().Lock(released.Resource)).Val(), "what is left of it")
	require.NoError(t, rdb.Set(t.Context(), rediskeys.Default().Lock("r:0"), "of someone else", 0).Err())
	require.NoError(t, rdb.Set(t.Context(), rediskeys.Default().Lock("r:0000"), "fencing is fun", 0).Err())
	require.NoError(t, rdb.HSet(t.Context(), rediskeys.Default().Lock("r:1"), "of", "someone else").Err())
	require.NoError(t, rdb.Set(t.Context(), rediskeys.Default().Lock("r:\n"), "of someone else", 0).Err())
	require.Equal(t, 101, strings.Count(ok(t, "ls", "r:", "--redis", url), "\n"))
	r := run(t, "ls", "--redis", url, "--limit=40")
	require.Contains(t, r.stderr, "more than 40")
	for i := range 100 {
		require.Equal(t, i < 40, strings.Contains(r.stdout, fmt.Sprintf("r:%02d ", i)), i)
	}
}

func TestLsIsForTheOwnerOfTheSchema(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	role := newRole(t, db, half1)
	fails(t, 3, "connect as the owner of the schema", "ls", "--postgres", as(t, db.url, role, half1))
	fails(t, 2, "no server to look at", "ls")
	fails(t, 2, "--limit", "ls", "--postgres", db.url, "--limit=0")
	fails(t, 3, "fencectl migrate up", "ls", "--postgres", newDatabase(t).url)
}

// Whoever may raise a fence chooses the name of its holder, and an operator looks at it.
func TestNothingThatOthersHaveNamedIsObeyedByATerminal(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	pg := "--postgres=" + db.url
	db.exec(t, `SELECT fencing.issue(E'r\u202e', 'n', E'h\x1b[2J\u009b1m'), fencing.lease_acquire(E'r\u202e', 'n', E'l\x1b[2J', 600000)`)
	require.Contains(t, ok(t, "ls", pg), `r\u202e`)
	require.Contains(t, ok(t, "ls", pg), `h\x1b[2J\u009b1m`)
	script := ok(t, "ls", "--json", pg)
	var all []struct{ Fence struct{ Holder string } }
	require.NoError(t, json.Unmarshal([]byte(script), &all))
	require.Equal(t, "h\x1b[2J\u009b1m", all[0].Fence.Holder)
	held := fails(t, 1, `l\x1b[2J`, "rebase", "r\u202e", pg)
	run := fails(t, 1, `l\x1b[2J`, "run", "r\u202e", "--wait=0s", pg, "--", "true")
	db.exec(t, `UPDATE fencing.lease SET expires_at = now()`)
	for _, text := range []string{ok(t, "ls", pg), script, held.stderr, run.stderr, ok(t, "rebase", "r\u202e", pg), ok(t, "rebase", "r\u202e", "--json", pg)} {
		require.NotContains(t, text, "\x1b")
		require.NotContains(t, text, "\u009b")
		require.NotContains(t, text, "\u202e")
	}
}
