package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
)

// A patient is a database and a Redis for the doctor to look at.
type patient struct {
	database
	rdb  *redis.Client
	args []string
}

func newPatient(t *testing.T, db database) patient {
	t.Helper()
	// Not by CONFIG SET: while it writes its first append-only file Redis refuses to end.
	url := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--appendonly", "yes"}}).URL()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return patient{db, rdb, []string{"--postgres", db.url, "--redis", url}}
}

type finding struct{ Server, Check, Level, Says, Do string }

// findings returns what the doctor finds, by check.
func (p patient) findings(t *testing.T, code int) map[string]finding {
	t.Helper()
	r := run(t, append([]string{"doctor", "--json"}, p.args...)...)
	require.Equal(t, code, r.code, r.stdout+r.stderr)
	var all []finding
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &all))
	by := map[string]finding{}
	for _, f := range all {
		if worse := by[f.Check]; worse.Level == "" || worse.Level == "ok" {
			by[f.Check] = f
		}
		require.Equal(t, f.Level == "ok", f.Do == "", "%+v", f)
	}
	return by
}

// Each fault is found, and nothing else with it.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	// The tests' own server does not wait for the disk, which the doctor would say.
	server := servertest.NewPostgres(t, localserver.PostgresOptions{Settings: map[string]string{"wal_level": "logical"}})
	databases := 0
	counter := rediskeys.Default().Counter("inventory:sku-42")
	for name, c := range map[string]struct {
		break_       func(t *testing.T, p patient)
		code         int
		check, level string
		says         string
	}{
		"no schema":     {func(t *testing.T, p patient) { ok(t, append([]string{"migrate", "down"}, p.args[:2]...)...) }, 1, "schema", "fail", "no fence schema"},
		"an old schema": {func(t *testing.T, p patient) { ok(t, append([]string{"migrate", "down", "--to=1"}, p.args[:2]...)...) }, 1, "schema", "fail", "at version 1"},
		"commits not kept": {func(t *testing.T, p patient) {
			p.exec(t, "do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$")
		}, 0, "durability", "warn", "synchronous_commit is off"},
		"rights":           {func(t *testing.T, p patient) { p.exec(t, "grant update on fencing.fence to public") }, 1, "rights", "fail", "UPDATE on fencing.fence to PUBLIC"},
		"a column's right": {func(t *testing.T, p patient) { p.exec(t, "grant update (token) on fencing.fence to public") }, 1, "rights", "fail", "UPDATE(token) on fencing.fence to PUBLIC"},
		"nonces are read":  {func(t *testing.T, p patient) { p.exec(t, "grant select (nonce) on fencing.fence to public") }, 0, "rights", "warn", "SELECT(nonce) on fencing.fence to PUBLIC"},
		"a trigger is off": {offTrigger, 1, "triggers", "fail", "fencing_update of public.inventory does not fire always"},
		"a poisoned fence": {func(t *testing.T, p patient) {
			p.exec(t, "select fencing.raise('inventory:sku-42', 9223372036854775806, 'n')")
		}, 1, "fences", "fail", "9223372036854775806"},
		"Redis is behind": {func(t *testing.T, p patient) {
			p.exec(t, "select fencing.raise('inventory:sku-42', 40, 'n')")
			p.set(t, counter, "7")
		}, 0, "counters", "warn", "behind the database"},
		"another prefix": {func(t *testing.T, p patient) { p.exec(t, "select fencing.raise('inventory:sku-42', 40, 'n')") }, 0, "counters", "warn", "--prefix or --shards is not that of the locks"},
		"a counter expires": {func(t *testing.T, p patient) {
			p.set(t, counter, "7")
			require.NoError(t, p.rdb.Expire(t.Context(), counter, 1e12).Err())
		}, 1, "counters", "fail", counter},
		"a list for a counter": {func(t *testing.T, p patient) {
			require.NoError(t, p.rdb.LPush(t.Context(), rediskeys.Default().Counters()[0], 1).Err())
		}, 1, "counters", "fail", rediskeys.Default().Counters()[0]},
		"someone waits": {waits, 0, "gates", "warn", "1 session held up"},
		"a subscriber":  {subscribes, 0, "", "", ""},
		"local commits": {func(t *testing.T, p patient) {
			p.exec(t, "do $$ begin execute format('alter database %I set synchronous_commit = local', current_database()); end $$")
		}, 0, "", "", ""},
		"no counter":     {func(t *testing.T, p patient) { p.set(t, counter, "hello") }, 1, "counters", "fail", counter},
		"a poisoned one": {func(t *testing.T, p patient) { p.set(t, counter, "9223372036854775806") }, 1, "counters", "fail", counter},
		"a counter of what was given up": {func(t *testing.T, p patient) {
			p.exec(t, "select fencing.raise('inventory:sku-42', 9223372036854775807, 'n'); select fencing.rebase('inventory:sku-42', 1000)")
			p.set(t, counter, "72057594037928935")
		}, 1, "counters", "fail", counter},
		"a counter below": {func(t *testing.T, p patient) {
			p.exec(t, "select fencing.raise('inventory:sku-42', 9223372036854775807, 'n'); select fencing.rebase('inventory:sku-42', 1000)")
			p.set(t, counter, "72057594037928934")
		}, 0, "", "", ""},
		"eviction":          {evicts("allkeys-lru"), 0, "eviction", "warn", "counters may be evicted"},
		"eviction of locks": {evicts("volatile-lru"), 0, "eviction", "warn", "a lock may be evicted"},
		"nothing":           {func(*testing.T, patient) {}, 0, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			databases++
			name := fmt.Sprintf("shop%d", databases)
			connect(t, server.URL("")).exec(t, "create database "+name)
			p := newPatient(t, connect(t, server.URL(name)))
			ok(t, append([]string{"migrate", "up"}, p.args[:2]...)...)
			c.break_(t, p)
			for check, f := range p.findings(t, c.code) {
				if check == c.check {
					require.Equal(t, c.level, f.Level, f)
					require.Contains(t, f.Says, c.says)
					continue
				}
				require.Equal(t, "ok", f.Level, f)
			}
		})
	}
}

// Whoever may create functions in a schema of the search path must not get one of
// them called by a superuser who looks.
func TestWhoLooksCallsNobodysOwnFunction(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for signature, result := range map[string]string{"format(text, text, regclass, text)": "text", "has_table_privilege(regclass, text)": "boolean"} {
		db.exec(t, "CREATE FUNCTION public."+signature+" RETURNS "+result+" LANGUAGE plpgsql AS 'BEGIN RAISE ''captured''; END'")
	}
	db.exec(t, "CREATE TABLE public.item (sku text); GRANT UPDATE ON fencing.fence TO PUBLIC")
	require.Contains(t, fails(t, 1, "UPDATE on fencing.fence to PUBLIC", "doctor", "--postgres", db.url).stdout, "0 resources fenced")
	require.Equal(t, "nothing\n", ok(t, "ls", "--postgres", db.url))
}

func (p patient) set(t *testing.T, key, value string) {
	t.Helper()
	require.NoError(t, p.rdb.Set(t.Context(), key, value, 0).Err())
}

func offTrigger(t *testing.T, p patient) {
	t.Helper()
	p.exec(t, "create table inventory (sku text primary key)")
	ok(t, append([]string{"protect", "inventory", "--resource=sku", "--trigger"}, p.args[:2]...)...)
	require.Equal(t, "ok", p.findings(t, 0)["triggers"].Level)
	p.exec(t, "alter table inventory disable trigger fencing_update")
}

// waits has a session wait for an advisory lock until the test ends.
func waits(t *testing.T, p patient) {
	t.Helper()
	p.exec(t, "begin; select pg_advisory_xact_lock(1)")
	second := connect(t, p.url)
	waiting := make(chan error, 1)
	go func() {
		_, err := second.conn.Exec(context.WithoutCancel(t.Context()), "select pg_advisory_xact_lock(1)")
		waiting <- err
	}()
	t.Cleanup(func() {
		_, err := p.conn.Exec(context.Background(), "rollback")
		require.NoError(t, errors.Join(err, <-waiting))
	})
	require.Eventually(t, func() bool { return p.query(t, "select count(*)::text from pg_locks where not granted") == "1" }, time.Minute, 10*time.Millisecond)
}

// subscribes to a publication, which looks like a standby at first.
func subscribes(t *testing.T, p patient) {
	t.Helper()
	p.exec(t, "create publication all_tables for all tables")
	p.exec(t, "select pg_create_logical_replication_slot('subscriber', 'pgoutput')")
	config, err := pgconn.ParseConfig(p.url)
	require.NoError(t, err)
	config.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Conn().Close() })
	conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION SLOT subscriber LOGICAL 0/0 (proto_version '1', publication_names 'all_tables')"})
	require.NoError(t, conn.Frontend().Flush())
	require.Eventually(t, func() bool { return p.query(t, "select count(*)::text from pg_stat_replication") == "1" }, time.Minute, 10*time.Millisecond)
}

func evicts(policy string) func(*testing.T, patient) {
	return func(t *testing.T, p patient) {
		require.NoError(t, p.rdb.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
		require.NoError(t, p.rdb.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
	}
}

func TestDoctorLsAndRebaseInACluster(t *testing.T) {
	t.Parallel()
	cluster := servertest.NewRedisCluster(t, 3, 0)
	url := "redis://" + cluster.Addrs()[0]
	text := ok(t, "doctor", "--redis", url)
	require.Equal(t, 3, strings.Count(text, "a master"), text)
	db := migrated(t)
	require.Equal(t, 0, start(t, "inventory:1", "--redis", url, "--postgres", db.url, "--", "true").end())
	require.Contains(t, ok(t, "ls", "--redis", url, "--postgres", db.url), "inventory:1")

	counter := rediskeys.Default().Counter("inventory:1")
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	require.NoError(t, rdb.Set(t.Context(), counter, "9223372036854775807", 0).Err())
	require.Contains(t, ok(t, "rebase", "inventory:1", "--yes", "--redis", url, "--postgres", db.url), "9223372036854775807 → 4503599627370496\n")
	require.Equal(t, "4503599627370496", rdb.Get(t.Context(), counter).Val())

	// Who waits hears of a release on the channels that the lock's users tell it on.
	path := filepath.Join(t.TempDir(), "started")
	holder := start(t, "inventory:1", "--redis", url, "--postgres", db.url, "--", "sh", "-c", "echo $$ >"+path+"; exec sleep 600")
	appears(t, path)
	require.Contains(t, ok(t, "ls", "--redis", url), "inventory:1")
	waiter := start(t, "inventory:1", "--redis", url, "--postgres", db.url, "--", "true")
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(cluster.Addrs(), func(addr string) bool {
			node := redis.NewClient(&redis.Options{Addr: addr})
			defer func() { _ = node.Close() }()
			channels, err := node.PubSubShardChannels(t.Context(), "*").Result()
			return err == nil && len(channels) > 0
		})
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, holder.process.Signal(syscall.SIGTERM))
	require.Equal(t, 130, holder.end())
	require.Equal(t, 0, waiter.end(), waiter.stderr.String())
}

func TestDoctorNeedsAServer(t *testing.T) {
	t.Parallel()
	fails(t, 2, "no server to look at", "doctor")
	fails(t, 3, "cannot use", "doctor", "--redis=redis://127.0.0.1:1/0")
	fails(t, 3, "cannot connect", "doctor", "--postgres=postgres://app@127.0.0.1:1/shop")
	fails(t, 2, "--shards", "doctor", "--shards=0")
}

// What one server hides, or all of it, is no reason to say nothing of the other.
func TestDoctorSaysWhatItHasFoundElsewhere(t *testing.T) {
	t.Parallel()
	p := newPatient(t, migrated(t))
	const nobody = "redis://:" + half1 + "@127.0.0.1:1/0"
	r := fails(t, 3, "nobody waits for a transaction", "doctor", p.args[0], p.args[1], "--redis", nobody)
	require.Contains(t, r.stdout, "redis://127.0.0.1:1/0\n  FAIL  server       not looked at: --redis: cannot use")
	require.Contains(t, r.stderr, "is a server running there?")
	requireSecret(t, r, nobody)
	r = fails(t, 3, "a master", "doctor", "--json", p.args[2], p.args[3], "--postgres", "postgres://app@127.0.0.1:1/shop")
	var all []finding
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &all), r.stdout)
	require.Equal(t, "fail", all[0].Level)
	require.Contains(t, all[0].Says, "not looked at: --postgres: cannot connect")
	fails(t, 2, "--redis", "doctor", p.args[0], p.args[1], "--redis", "http://h")
	fails(t, 2, "there is no such role", "doctor", p.args[0], p.args[1], "--redis", nobody, "--role", "nobody")
}

func TestDoctorLeavesOutWhatAUserOfRedisMayNotSee(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rights, check, says string }{
		"no info":     {"~* +@all -info", "server", "NOPERM"},
		"no ttl":      {"~* +@all -ttl", "counters", "NOPERM"},
		"not the key": {"~other:* +@all", "counters", "NOPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, migrated(t))
			args := []any{"acl", "setuser", "looker", "on", ">" + half1}
			for right := range strings.FieldsSeq(c.rights) {
				args = append(args, right)
			}
			require.NoError(t, p.rdb.Do(t.Context(), args...).Err())
			p.args[3] = as(t, p.args[3], "looker", half1)
			found := 0
			for check, f := range p.findings(t, 1) { // the tests' Postgres does not wait for its disk
				switch {
				case check == c.check && strings.HasPrefix(f.Server, "redis"):
					require.Equal(t, "warn", f.Level, f)
					require.Contains(t, f.Says, "not looked at: ")
					require.Contains(t, f.Says, c.says)
					found++
				case check != "durability":
					require.Equal(t, "ok", f.Level, f)
				}
			}
			require.Equal(t, 1, found)
		})
	}
}
