package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
)

const (
	waiting = 30 * time.Second
	polling = 50 * time.Millisecond
)

// A line is any object that "demo --json" writes.
type line struct {
	Type, Title, What, Actor, Text, Error, SQLState string
	Postgres, Store, SQLite                         string
	Token                                           string
	Act, Sold, Stock, Want, Refused, Repaired       int
	Guarded, Clean, OK                              bool
	Seconds                                         float64
}

func parse(t *testing.T, stdout string) (lines []line) {
	t.Helper()
	for text := range strings.Lines(stdout) {
		var l line
		require.NoError(t, json.Unmarshal([]byte(text), &l), text)
		lines = append(lines, l)
	}
	return lines
}

// requireStory checks the whole of a demo that went well on Postgres.
func requireStory(t *testing.T, stdout string) {
	t.Helper()
	for _, r := range requireActs(t, stdout, "postgres") {
		require.Equal(t, "UF001", r.SQLState, "the server refused it")
		require.Regexp(t, `^ERROR: fencing: fence of 'inventory:sku-42' is stale: token \d+ is held, the current one is \d+ of '[BC] \(process \d+\)'.* \(SQLSTATE UF001\)$`, r.Postgres)
	}
}

// requireActs checks what is the same on every store, and returns the refusals.
func requireActs(t *testing.T, stdout, store string) (refusals []line) {
	t.Helper()
	lines := parse(t, stdout)
	var results, events []line // of acts that came to their end
	var act []line             // the events of one that begins again do not count
	seconds := 0.0
	for _, l := range lines {
		switch l.Type {
		case "act":
			act = nil
		case "event":
			require.GreaterOrEqual(t, l.Seconds, seconds, "time goes on")
			seconds = l.Seconds
			act = append(act, l)
		case "result":
			results, events = append(results, l), append(events, act...)
		}
	}
	what := map[string]int{}
	for _, e := range events {
		what[e.What]++
		if e.What == "refused" {
			refusals = append(refusals, e)
		}
	}
	require.Len(t, results, 4)
	require.Equal(t, []any{false, 80, 70, 20, false, 0}, []any{results[0].Guarded, results[0].Sold, results[0].Stock, results[0].Want, results[0].Clean, results[0].Refused})
	for _, r := range results[1:] {
		require.Equal(t, []any{true, 80, 20, 20, true, 1}, []any{r.Guarded, r.Sold, r.Stock, r.Want, r.Clean, r.Refused}, r.Text)
	}
	require.Equal(t, 1, results[3].Repaired)
	require.Equal(t, 3, what["frozen"], "each pause is a real one")
	require.Equal(t, 3, what["woken"])
	require.Equal(t, 1, what["forgot"])
	for _, r := range refusals {
		require.Contains(t, r.Error, "nothing was written, stop this work and acquire the lock again")
		require.Equal(t, "A", r.Actor)
	}
	verdict := lines[len(lines)-1]
	require.Equal(t, "verdict", verdict.Type)
	require.True(t, verdict.OK, verdict.Text)
	require.Equal(t, []string{"opening", store}, []string{lines[0].Type, lines[0].Store})
	return refusals
}

// newTempDir returns a directory that the server's user can reach if the test is
// run by root; those of t.TempDir are closed to others.
func newTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencectl-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// requireGone checks that a demo has left no process and no file. marker is in the
// environment of all its processes.
func requireGone(t *testing.T, tmp, marker string) {
	t.Helper()
	entries, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, entries, "files are left")
	require.Empty(t, processes(t, marker), "processes are left")
}

// processes lists, where there is a /proc, those that have marker in their
// environment.
func processes(t *testing.T, marker string) (found []string) {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, path := range environs {
		// A process that has ended meanwhile is none.
		if content, err := os.ReadFile(path); err == nil && strings.Contains(string(content), marker) {
			found = append(found, path)
		}
	}
	return found
}

// TestTheBuiltBinaryNeedsNothing has no race detector and no test flags in its way.
func TestTheBuiltBinaryNeedsNothing(t *testing.T) {
	t.Parallel()
	servertest.Postgres(t) // skips where the machine has no Postgres
	program, err := built()
	require.NoError(t, err)
	tmp := newTempDir(t)
	// An application's database is no stage for a demo: there is no server here.
	r := call{program: program, args: []string{"demo"}, env: []string{"TMPDIR=" + tmp, "DATABASE_URL=postgres://app@127.0.0.1:1/shop"}}.run(t)
	require.Equal(t, 0, r.code, "%s%s", r.stdout, r.stderr)
	require.Empty(t, r.stderr)
	require.NotContains(t, r.stdout, "\x1b", "colours are for terminals")
	for _, says := range []string{
		"miniredis, in this process", "a private server at 127.0.0.1:",
		"Act 1", "=> sold 80 of 100, stock says 70, should be 20: B's update is lost",
		"Act 2", "refused by Postgres", "(SQLSTATE UF001)", "=> sold 80 of 100, stock says 20: right",
		"Act 3", "Act 4", "FLUSHALL",
	} {
		require.Contains(t, r.stdout, says)
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Equal(t, "OK: the lock alone lost 50 of 80 sold, the fence none; 3 stale writes refused", lines[len(lines)-1])
	requireGone(t, tmp, "TMPDIR="+tmp)
}

// S1 is act 2, S2 is act 3, S13 is act 4.
func TestS1_S2_S13_DemoWithoutServersOfTheUser(t *testing.T) {
	t.Parallel()
	servertest.Postgres(t)
	tmp := newTempDir(t)
	r := call{args: []string{"demo", "--fast", "--json"}, env: []string{"TMPDIR=" + tmp}}.run(t)
	require.Equal(t, 0, r.code, "%s%s", r.stdout, r.stderr)
	requireStory(t, r.stdout)
	requireGone(t, tmp, "TMPDIR="+tmp)
}

func TestS1_S2_S13_DemoOnSQLite(t *testing.T) {
	t.Parallel()
	tmp := newTempDir(t)
	// --store is an answer to what the variable says.
	r := call{args: []string{"demo", "--fast", "--json", "--store", "sqlite"}, env: []string{"TMPDIR=" + tmp, "FENCING_POSTGRES_URL=postgres://app@127.0.0.1:1/shop"}}.run(t)
	require.Equal(t, 0, r.code, "%s%s", r.stdout, r.stderr)
	require.Empty(t, r.stderr)
	refusals := requireActs(t, r.stdout, "sqlite")
	require.Len(t, refusals, 3)
	for _, refusal := range refusals {
		require.Regexp(t, `^guard: fence of "inventory:sku-42" is stale: A \(process \d+\) holds token \d+, superseded by token \d+ of [BC] \(process \d+\) since `, refusal.Error)
		require.Empty(t, refusal.SQLState)
	}
	requireGone(t, tmp, "TMPDIR="+tmp)
}

func TestDemoWithAStoreThatIsNone(t *testing.T) {
	t.Parallel()
	fails(t, 2, `--store: "oracle" is no store; there are "postgres" and "sqlite"`, "demo", "--store=oracle")
	fails(t, 2, "--store sqlite and --postgres name two stores", "demo", "--store=sqlite", "--postgres=postgres://app@127.0.0.1:1/shop")
	fails(t, 3, "connection refused", "demo", "--store=postgres", "--postgres=postgres://app@127.0.0.1:1/shop")
}

// stage is a user's Postgres and Redis with something of theirs in it.
type stage struct {
	db     database
	redis  string
	rdb    *redis.Client
	before string
}

func newStage(t *testing.T) stage {
	t.Helper()
	s := stage{db: newDatabase(t), redis: servertest.Redis(t)}
	s.db.exec(t, "CREATE SCHEMA fencing; CREATE TABLE inventory (sku text)")
	s.before = s.db.schemas(t)
	o, err := redis.ParseURL(s.redis)
	require.NoError(t, err)
	s.rdb = redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, s.rdb.Close()) })
	require.NoError(t, s.rdb.Set(t.Context(), "theirs:"+t.Name(), "kept", time.Hour).Err())
	return s
}

func (s stage) requireUntouched(t *testing.T, r result) {
	t.Helper()
	require.Equal(t, s.before, s.db.schemas(t))
	require.Equal(t, "0", s.db.query(t, "SELECT count(*)::text FROM inventory"))
	kept, err := s.rdb.Get(t.Context(), "theirs:"+t.Name()).Result()
	require.NoError(t, err)
	require.Equal(t, "kept", kept)
	prefix := prefixOf(t, r)
	require.Eventually(t, func() bool {
		left, err := s.rdb.Keys(t.Context(), prefix+"*").Result()
		return err == nil && len(left) == 0
	}, waiting, polling, "keys %s* are left", prefix)
}

// prefixOf finds the name of the demo's keys in its first line.
func prefixOf(t *testing.T, r result) string {
	t.Helper()
	_, rest, found := strings.Cut(r.stdout, "keys fencing-demo-")
	require.True(t, found, r.stdout)
	id, _, _ := strings.Cut(rest, ":")
	require.NotEmpty(t, id)
	return "fencing-demo-" + id
}

func TestDemoOnTheServersOfTheUser(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	calls := commandCalls(t, s.rdb)
	tmp := newTempDir(t)
	r := call{args: []string{"demo", "--fast", "--json", "--redis", s.redis}, env: []string{"TMPDIR=" + tmp, "FENCING_POSTGRES_URL=" + s.db.url}}.run(t)
	require.Equal(t, 0, r.code, "%s%s", r.stdout, r.stderr)
	requireStory(t, r.stdout)
	s.requireUntouched(t, r)
	require.Equal(t, calls, commandCalls(t, s.rdb), "no FLUSHALL, no FLUSHDB on a server of others")
	requireGone(t, tmp, "TMPDIR="+tmp)
}

func commandCalls(t *testing.T, rdb *redis.Client) (flushes string) {
	t.Helper()
	stats, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for l := range strings.Lines(stats) {
		if strings.HasPrefix(l, "cmdstat_flush") {
			flushes += l
		}
	}
	return flushes
}

func TestDemoBehindPgBouncer(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	r := run(t, "demo", "--fast", "--json", "--postgres", servertest.PgBouncer(t, db.url))
	require.Equal(t, 0, r.code, "%s%s", r.stdout, r.stderr)
	requireStory(t, r.stdout)
}

// A guard that lets everyone in must be found out by the demo itself.
func TestDemoFailsWhereTheGuardLetsStaleWritesIn(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec(t, `CREATE FUNCTION sabotage() RETURNS event_trigger LANGUAGE plpgsql AS $$
		DECLARE r record;
		BEGIN
			FOR r IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_identity ~ '\.enter\(' LOOP
				IF current_setting('sabotage.done', true) IS DISTINCT FROM 'yes' THEN
					PERFORM set_config('sabotage.done', 'yes', true);
					EXECUTE format('CREATE OR REPLACE FUNCTION %I.enter(p_resource text, p_token bigint, p_nonce text, p_idle_timeout integer DEFAULT NULL)
						RETURNS void LANGUAGE sql AS ''SELECT''', r.schema_name);
				END IF;
			END LOOP;
		END $$;
		CREATE EVENT TRIGGER sabotage ON ddl_command_end WHEN TAG IN ('CREATE FUNCTION') EXECUTE FUNCTION sabotage()`)
	before := db.schemas(t)
	r := fails(t, 1, "act 2 is NOT clean although it was guarded", "demo", "--fast", "--json", "--postgres", db.url)
	lines := parse(t, r.stdout)
	require.False(t, lines[len(lines)-1].OK)
	require.Empty(t, r.stderr)
	require.Equal(t, before, db.schemas(t))
}

// If the lock alone loses nothing, the guarded acts prove nothing.
func TestDemoFailsWhereTheLockAloneLosesNothing(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec(t, `CREATE FUNCTION heal() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NEW.stock = 70 THEN NEW.stock := 20; END IF;
			RETURN NEW;
		END $$;
		CREATE FUNCTION heal_inventory() RETURNS event_trigger LANGUAGE plpgsql AS $$
		DECLARE r record;
		BEGIN
			FOR r IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_identity ~ '\.inventory$' LOOP
				EXECUTE format('CREATE TRIGGER heal BEFORE UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION public.heal()', r.object_identity);
			END LOOP;
		END $$;
		CREATE EVENT TRIGGER heal ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION heal_inventory()`)
	r := fails(t, 1, "FAILED: act 1 lost no update, so the others prove nothing", "demo", "--fast", "--postgres", db.url)
	require.Empty(t, r.stderr)
}

func TestDemoWithoutUsableServers(t *testing.T) {
	t.Parallel()
	fails(t, 3, "connection refused", "demo", "--postgres=postgres://app@127.0.0.1:1/shop")
	fails(t, 3, "connection refused", "demo", "--redis=redis://127.0.0.1:1")
	fails(t, 2, "a https URL where one of redis, rediss, unix is needed", "demo", "--redis=https://127.0.0.1:1")

	db := newDatabase(t)
	role := newRole(t, db, "")
	before := db.schemas(t)
	fails(t, 3, "permission denied for database", "demo", "--postgres="+as(t, db.url, role, ""))
	require.Equal(t, before, db.schemas(t))

	replica := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--replicaof", "127.0.0.1 1"}})
	fails(t, 3, "the server is a read-only replica", "demo", "--redis="+replica.URL())
}

func TestTheWorkerIsForTheDemoAlone(t *testing.T) {
	t.Parallel()
	fails(t, 2, `this command is for "fencectl demo" alone`, "demo-worker")
	require.NotContains(t, ok(t, "--help"), "demo-worker")
}
