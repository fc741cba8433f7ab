package docs_test

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

type scriptVectors struct {
	Scripts map[string]struct {
		Files      []string
		SHA1       string
		Cluster    string `json:"cluster_sha1"`
		Keys, Args []string
		Optional   int // of the args
	}
	Histories []struct {
		Name    string
		Listens string // somebody, to this channel
		Steps   []struct {
			Script     string
			Keys, Args []string
			Command    []any
			Reply      any
			Messages   []any
		}
	}
}

func (v scriptVectors) source(t *testing.T, name string) string {
	t.Helper()
	var source strings.Builder
	require.Contains(t, v.Scripts, name)
	for _, file := range v.Scripts[name].Files {
		data, err := os.ReadFile("../" + file)
		require.NoError(t, err)
		source.Write(data)
	}
	return source.String()
}

// The hashes are those of the scripts that redislock has the server run.
func TestScriptsAreTheShippedOnes(t *testing.T) {
	t.Parallel()
	var v scriptVectors
	load(t, "scripts.json", &v)
	rdb := client(t, servertest.NewRedis(t, localserver.RedisOptions{}).URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	r := request("inventory:sku-42", "nonce-a")
	_, err = b.Acquire(t.Context(), r)
	require.NoError(t, err)
	next := request("inventory:sku-42", "nonce-b")
	_, err = b.Pass(t.Context(), r, next)
	require.NoError(t, err)
	require.NoError(t, b.Join(t.Context(), next, "member-1"))
	require.NoError(t, b.Release(t.Context(), next), "by leave, since others stay")
	require.NoError(t, b.Leave(t.Context(), next, "member-1"))
	r = request("inventory:sku-42", "nonce-c")
	_, err = b.AcquireInTurn(t.Context(), r, lock.MaxTTL)
	require.NoError(t, err)
	require.NoError(t, b.Renew(t.Context(), r))
	require.NoError(t, b.Release(t.Context(), r))
	require.NoError(t, b.Withdraw(t.Context(), r))

	require.Len(t, v.Scripts, 10)
	publish, err := os.ReadFile("../lock/redislock/publish.lua")
	require.NoError(t, err)
	spublish, err := os.ReadFile("../lock/redislock/spublish.lua")
	require.NoError(t, err)
	doc := document(t)
	for name, s := range v.Scripts {
		require.Equal(t, sum(v.source(t, name)), s.SHA1, name)
		if rest, publishes := strings.CutPrefix(v.source(t, name), string(publish)); publishes {
			require.Equal(t, sum(string(spublish)+rest), s.Cluster, name)
		}
		known, err := rdb.ScriptExists(t.Context(), s.SHA1).Result()
		require.NoError(t, err)
		require.Equal(t, []bool{true}, known, "redislock runs another script %s", name)
		for _, file := range s.Files {
			require.Contains(t, doc, file[strings.LastIndex(file, "/")+1:])
		}
	}
}

func sum(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

func TestScriptsReplyAsInTheVectors(t *testing.T) {
	t.Parallel()
	var v scriptVectors
	load(t, "scripts.json", &v)
	require.NotEmpty(t, v.Histories)
	rdb := client(t, servertest.NewRedis(t, localserver.RedisOptions{}).URL())
	heard := rdb.PSubscribe(t.Context(), "*")
	t.Cleanup(func() { _ = heard.Close() })
	_, err := heard.Receive(t.Context())
	require.NoError(t, err)
	for _, h := range v.Histories {
		t.Run(h.Name, func(t *testing.T) {
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
			if h.Listens != "" { // a pattern does not count
				defer listen(t, rdb, h.Listens)()
			}
			for i, s := range h.Steps {
				args := s.Command
				if s.Script != "" {
					script := v.Scripts[s.Script]
					require.Len(t, s.Keys, len(script.Keys))
					require.LessOrEqual(t, len(s.Args), len(script.Args))
					require.GreaterOrEqual(t, len(s.Args), len(script.Args)-script.Optional)
					args = append(args, "EVAL", v.source(t, s.Script), len(s.Keys))
					for _, a := range append(s.Keys, s.Args...) {
						args = append(args, a)
					}
				}
				got, err := rdb.Do(t.Context(), args...).Result()
				if err != nil && !errors.Is(err, redis.Nil) {
					got = err
				}
				requireReply(t, s.Reply, got, "step %d, %s %v", i+1, s.Script, s.Command)
				if s.Script != "" {
					require.NoError(t, rdb.Publish(t.Context(), "end of the step", "").Err())
					requireReply(t, append([]any{}, s.Messages...), published(t, heard, s.Keys[0]), "messages of step %d, %s", i+1, s.Script)
				}
			}
		})
	}
}

// listen subscribes to a channel, and returns what ends that.
func listen(t *testing.T, rdb *redis.Client, channel string) (end func()) {
	t.Helper()
	conn := rdb.Subscribe(t.Context(), channel)
	_, err := conn.Receive(t.Context())
	require.NoError(t, err)
	return func() {
		require.NoError(t, conn.Unsubscribe(t.Context(), channel))
		for ended := false; !ended; {
			m, err := conn.Receive(t.Context())
			require.NoError(t, err)
			s, ok := m.(*redis.Subscription)
			ended = ok && s.Kind == "unsubscribe"
		}
		require.NoError(t, conn.Close())
	}
}

// published returns what came until the end of the step.
func published(t *testing.T, heard *redis.PubSub, channel string) []any {
	t.Helper()
	all := []any{}
	for {
		m, err := heard.ReceiveMessage(t.Context())
		require.NoError(t, err)
		if m.Channel == "end of the step" {
			return all
		}
		require.Equal(t, channel, m.Channel)
		all = append(all, m.Payload)
	}
}

func requireReply(t *testing.T, want, got any, message ...any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		if text, ok := want["error"]; ok {
			err, isErr := got.(error)
			require.True(t, isErr && strings.HasPrefix(err.Error(), text.(string)), "got %v, want the error %v: %v", got, text, message)
			return
		}
		if text, ok := want["like"]; ok {
			require.Regexp(t, text, got, message...)
			return
		}
		require.IsType(t, int64(0), got, message...)
		require.GreaterOrEqual(t, float64(got.(int64)), want["from"], message...)
		require.LessOrEqual(t, float64(got.(int64)), want["to"], message...)
	case []any:
		list, ok := got.([]any)
		require.True(t, ok && len(list) == len(want), "got %v, want %v: %v", got, want, message)
		for i := range want {
			requireReply(t, want[i], list[i], message...)
		}
	case float64:
		require.Less(t, want, float64(1<<53), message...)
		require.Equal(t, int64(want), got, message...)
	default:
		require.Equal(t, want, got, message...)
	}
}
