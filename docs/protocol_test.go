// Package docs_test holds what docs/protocol.md promises to clients in other
// languages to the code that is shipped.
package docs_test

import (
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"os"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/migrations"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func load(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, into))
}

func TestKeysAreThoseOfTheVectors(t *testing.T) {
	t.Parallel()
	var file struct {
		Vectors []struct {
			Prefix, Resource, Nonce string
			Shards                  int
			Hash, Shard             uint32
			Keys                    rediskeys.Keys
		}
		Shared  []struct{ Lock, Counter, Resource, Nonce, Released, Members, Queue, Alive string }
		Invalid []struct{ Hex, Why string }
	}
	load(t, "keys.json", &file)
	require.Greater(t, len(file.Vectors), 15)
	for _, v := range file.Vectors {
		s := rediskeys.Scheme{Prefix: v.Prefix, Shards: v.Shards}
		require.NoError(t, s.Validate())
		require.NoError(t, guard.ValidateResource(v.Resource))
		h := fnv.New32a()
		_, _ = h.Write([]byte(v.Resource))
		require.Equal(t, h.Sum32(), v.Hash)
		require.Equal(t, v.Hash%uint32(v.Shards), v.Shard)
		require.Equal(t, s.Keys(v.Resource, v.Nonce), v.Keys)
	}
	require.NotEmpty(t, file.Invalid)
	for _, v := range file.Invalid {
		name, err := hex.DecodeString(v.Hex)
		require.NoError(t, err)
		require.ErrorIs(t, guard.ValidateResource(string(name)), guard.ErrInvalid, v.Why)
	}

	// What a back end with keys of the caller's choice really asks for.
	require.NotEmpty(t, file.Shared)
	for _, v := range file.Shared {
		rdb := client(t, servertest.NewRedis(t, localserver.RedisOptions{}).URL())
		b, err := redislock.New(rdb, redislock.WithKeys(func(string) (string, string) { return v.Lock, v.Counter }))
		require.NoError(t, err)
		holder := request(v.Resource, "another")
		_, err = b.Acquire(t.Context(), holder)
		require.NoError(t, err)
		_, err = b.AcquireInTurn(t.Context(), request(v.Resource, v.Nonce), lock.MaxTTL)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.ErrorIs(t, b.Release(t.Context(), request(v.Resource, v.Nonce)), lock.ErrLost)
		require.NoError(t, b.Join(t.Context(), holder, "member-1"))
		keys, err := rdb.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.ElementsMatch(t, []string{v.Lock, v.Counter, v.Released, v.Members, v.Queue, v.Alive}, keys)
	}
}

func TestFenceTextsAreThoseOfTheVectors(t *testing.T) {
	t.Parallel()
	var file struct {
		Valid []struct {
			Text, Resource, Nonce, Holder string
			Token                         guard.Token
		}
		Invalid []struct{ Why, Text string }
	}
	load(t, "fences.json", &file)
	require.NotEmpty(t, file.Valid)
	for _, v := range file.Valid {
		want := guard.Fence{Resource: v.Resource, Token: v.Token, Nonce: v.Nonce, Holder: v.Holder}
		text, err := want.MarshalText()
		require.NoError(t, err)
		require.Equal(t, v.Text, string(text))
		var got guard.Fence
		require.NoError(t, got.UnmarshalText([]byte(v.Text)))
		require.Equal(t, want, got)
	}
	require.NotEmpty(t, file.Invalid)
	for _, v := range file.Invalid {
		require.ErrorIs(t, new(guard.Fence).UnmarshalText([]byte(v.Text)), guard.ErrInvalid, v.Why)
	}
}

func TestTheWorkedExamplesAreRight(t *testing.T) {
	t.Parallel()
	doc := document(t)
	scheme := rediskeys.Default()
	h := fnv.New32a()
	_, _ = h.Write([]byte("inventory:sku-42"))
	require.Contains(t, doc, strconv.FormatUint(uint64(h.Sum32()), 10))
	require.Contains(t, doc, scheme.Lock("inventory:sku-42"))
	require.Contains(t, doc, scheme.Counter("inventory:sku-42"))
	text, err := guard.Fence{Resource: "склад;42", Token: 33, Nonce: "n"}.MarshalText()
	require.NoError(t, err)
	require.Contains(t, doc, string(text)+"\n")

	synctest.Test(t, func(t *testing.T) { // at midnight of 2000-01-01
		key, err := fencewire.NewKey("k1", []byte("first-secret-of-thirty-two-bytes"))
		require.NoError(t, err)
		signer, err := fencewire.NewSigner("inventory", key)
		require.NoError(t, err)
		values, err := signer.Sign(guard.NewContext(t.Context(), guard.Fence{Resource: "inventory:sku-42", Token: 33, Nonce: "5f0c", Holder: "worker-a"}))
		require.NoError(t, err)
		require.Contains(t, doc, "    "+values[0]+"\n")
	})
}

// What every client may call, and every code that it may get, is documented.
func TestNothingOfTheSchemaIsLeftOut(t *testing.T) {
	t.Parallel()
	doc := document(t)
	conn := connect(t, migrated(t))
	rows, err := conn.Query(t.Context(), `SELECT proname FROM pg_proc
		WHERE pronamespace = 'fencing'::regnamespace AND has_function_privilege('pg_monitor', oid, 'EXECUTE')
		  AND prorettype <> 'trigger'::regtype AND proname NOT LIKE 'lease_%'`)
	require.NoError(t, err)
	functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, functions, "enter_all")
	for _, f := range functions {
		require.Contains(t, doc, "`fencing."+f+"(", "a function that all may call")
	}
	files, err := migrations.FS.ReadDir(".")
	require.NoError(t, err)
	for _, f := range files {
		sql, err := migrations.FS.ReadFile(f.Name())
		require.NoError(t, err)
		for _, code := range regexp.MustCompile(`'(UF\d\d\d)'`).FindAllStringSubmatch(string(sql), -1) {
			require.Contains(t, doc, code[1], "of %s", f.Name())
		}
	}
}

func document(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("protocol.md")
	require.NoError(t, err)
	return string(doc)
}

func client(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func request(resource, nonce string) lock.Request {
	return lock.Request{Resource: resource, Nonce: nonce, Holder: "web-1", TTL: lock.MinTTL * 1000}
}

// migrated returns the URL of a database that has the fence schema.
func migrated(t *testing.T) string {
	t.Helper()
	url := servertest.Postgres(t)
	require.NoError(t, migrations.Up(t.Context(), connect(t, url)))
	return url
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}
