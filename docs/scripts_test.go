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
		Keys, Args []string
		Optional   int // of the args
	}
	Histories []struct {
		Name  string
		Steps []struct {
			Script     string
			Keys, Args []string
			Command    []any
			Reply      any
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
	require.NoError(t, b.Release(t.Context(), r))
	r = request("inventory:sku-42", "nonce-b")
	_, err = b.AcquireInTurn(t.Context(), r, lock.MaxTTL)
	require.NoError(t, err)
	require.NoError(t, b.Renew(t.Context(), r))
	require.NoError(t, b.Release(t.Context(), r))
	require.NoError(t, b.Withdraw(t.Context(), r))

	require.Len(t, v.Scripts, 7)
	doc := document(t)
	for name, s := range v.Scripts {
		sum := sha1.Sum([]byte(v.source(t, name)))
		require.Equal(t, hex.EncodeToString(sum[:]), s.SHA1, name)
		known, err := rdb.ScriptExists(t.Context(), s.SHA1).Result()
		require.NoError(t, err)
		require.Equal(t, []bool{true}, known, "redislock runs another script %s", name)
		for _, file := range s.Files {
			require.Contains(t, doc, file[strings.LastIndex(file, "/")+1:])
		}
	}
}

func TestScriptsReplyAsInTheVectors(t *testing.T) {
	t.Parallel()
	var v scriptVectors
	load(t, "scripts.json", &v)
	require.NotEmpty(t, v.Histories)
	rdb := client(t, servertest.NewRedis(t, localserver.RedisOptions{}).URL())
	for _, h := range v.Histories {
		t.Run(h.Name, func(t *testing.T) {
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
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
			}
		})
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
