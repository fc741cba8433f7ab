package redisguard_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/redisguard"
)

func TestScriptsHaveTheirOwnKeysAndArguments(t *testing.T) {
	t.Parallel()
	g, rdb, resource := shared(t)
	ctx, _ := raised(t, g, resource, 33, "A")
	a, b := g.Key(resource, "a"), g.Key(resource, "b")
	require.NoError(t, rdb.Set(ctx, a, 5, 0).Err())
	for name, c := range map[string]struct {
		body string
		want any
	}{
		"keys and arguments":         {"return {KEYS[1], KEYS[2], #KEYS, ARGV[1], ARGV[2], #ARGV}", []any{a, b, int64(2), "1", "two", int64(2)}},
		"in a function":              {"local function f(i) return KEYS[i] .. ARGV[i] end\nreturn f(1)", a + "1"},
		"an early return":            {"if ARGV[1] == '1' then return 'early' end\nreturn 'late'", "early"},
		"no newline after a comment": {"return 1 -- done", int64(1)},
		"a status":                   {"return redis.call('SET', KEYS[2], ARGV[2])", "OK"},
		"a number":                   {"return 2.9", int64(2)},
		"true":                       {"return true", int64(1)},
		"an empty table":             {"return {}", []any{}},
		"a table with a hole":        {"return {1, 'a', nil, 2}", []any{int64(1), "a"}},
		"an error that was caught":   {"local r = redis.pcall('INCR', KEYS[1], 1) return type(r.err)", "string"},
		"another reply protocol":     {"redis.setresp(3) return redis.call('GET', KEYS[1])", "5"},
	} {
		got, err := g.Run(ctx, redisguard.NewScript(c.body), []string{a, b}, 1, "two").Result()
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	for name, body := range map[string]string{"no return": "redis.call('SET', KEYS[1], 5)", "nil": "return nil", "false": "return false", "nothing at all": "", "a comment": "-- nothing"} {
		require.ErrorIs(t, g.Run(ctx, redisguard.NewScript(body), []string{a}).Err(), redis.Nil, name)
	}
	n, err := g.Run(ctx, redisguard.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])"), []string{a}, 7).Int()
	require.NoError(t, err)
	require.Equal(t, 12, n)
}

func TestErrorsOfAScriptAreItsOwn(t *testing.T) {
	t.Parallel()
	g, rdb, resource := shared(t)
	ctx, _ := raised(t, g, resource, 33, "A")
	key := g.Key(resource, "a")
	run := func(body string) error {
		require.NoError(t, rdb.Set(ctx, key, "before", 0).Err())
		return g.Run(ctx, redisguard.NewScript(body), []string{key}).Err()
	}
	err := run("return redis.error_reply('SOLDOUT none left')")
	require.EqualError(t, err, fmt.Sprintf("redisguard: run %q: SOLDOUT none left", key))
	require.True(t, redis.HasErrorPrefix(err, "SOLDOUT"))
	require.ErrorContains(t, run("return {err = 'MINE of a table'}"), "MINE of a table")
	require.ErrorContains(t, run("return redis.pcall('INCR', KEYS[1])"), "not an integer")

	err = run("redis.call('SET', KEYS[1], 'half')\n\nredis.call('INCR', KEYS[1])")
	require.ErrorContains(t, err, "not an integer")
	require.Equal(t, "half", rdb.Get(ctx, key).Val(), "Redis does not undo scripts")

	require.ErrorContains(t, run("local x\nreturn x.y"), "user_script:2:")
	require.ErrorContains(t, run("error('thrown')"), "thrown")
	require.ErrorContains(t, run("return nonsense"), "nonexistent global variable")
	for _, name := range []string{"n", "current", "keys", "argv", "done", "reply", "body", "failure"} {
		require.ErrorContains(t, run("return "+name), "nonexistent global variable '"+name+"'", "our names are not the script's")
		require.Error(t, run(name+" = 5"), "nor set by it")
	}
	err = run("return 1\nreturn 2")
	require.ErrorContains(t, err, "the script is no Lua")
	require.ErrorContains(t, err, "nothing was written")
	require.ErrorContains(t, err, "user_script:2:", "its own line")
	require.ErrorContains(t, run("#!lua\nreturn 1"), "shebang")
	require.ErrorContains(t, g.Run(ctx, nil, []string{key}).Err(), "nil")
	require.ErrorContains(t, g.Run(ctx, redisguard.NewScript("return 1"), nil).Err(), "no key is named")
	require.Equal(t, "before", rdb.Get(ctx, key).Val())
}

func TestAServerThatForgotTheScriptsLearnsThemAgain(t *testing.T) {
	t.Parallel()
	g, rdb, resource := shared(t)
	ctx, f := raised(t, g, resource, 33, "A")
	key := g.Key(resource, "a")
	require.NoError(t, g.Set(ctx, key, 1, 0))
	require.NoError(t, rdb.ScriptFlush(ctx).Err())
	require.NoError(t, g.Set(ctx, key, 2, 0))
	require.NoError(t, rdb.ScriptFlush(ctx).Err())
	require.NoError(t, g.Raise(ctx, f))
	require.Equal(t, "2", rdb.Get(ctx, key).Val())
}

// A serverError is one that a server answers with.
type serverError string

func (e serverError) Error() string { return string(e) }

func (serverError) RedisError() {}

// answers stands for a server: each command fails with the next one, and the last one
// again.
type answers struct {
	errs  []serverError
	asked int
	then  func() // after each
}

func (a *answers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *answers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *answers) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		err := error(a.errs[min(a.asked, len(a.errs)-1)])
		a.asked++
		if a.asked > 8 {
			err = errors.New("asked without end")
		}
		cmd.SetErr(err)
		if a.then != nil {
			a.then()
		}
		return err
	}
}

func answering(t *testing.T, a *answers) (*redisguard.Guard, context.Context, string) {
	t.Helper()
	rdb := connect(t, &redis.Options{})
	rdb.AddHook(a)
	g := open(t, rdb)
	return g, guard.NewContext(t.Context(), fence("r", 33, "A")), g.Key("r", "stock")
}

// A server that refuses to look at a script is asked a few times, also where it turns
// out in between that it does not know the script.
func TestAServerThatIsNotReadyIsAskedAFewTimes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		errs []serverError
		want int
	}{
		"from the beginning":          {[]serverError{"TRYAGAIN later"}, 4},
		"after it forgot the scripts": {[]serverError{"NOSCRIPT none", "LOADING later"}, 4},
		"and it forgets them at last": {[]serverError{"TRYAGAIN later", "TRYAGAIN later", "TRYAGAIN later", "NOSCRIPT none", "TRYAGAIN later"}, 5},
	} {
		a := &answers{errs: c.errs}
		g, ctx, key := answering(t, a)
		require.ErrorContains(t, g.Set(ctx, key, 1, 0), "nothing was written", name)
		require.Equal(t, c.want, a.asked, name)
	}
}

// The context ends while the script waits to be sent again.
func TestTheEndOfTheContextIsNamed(t *testing.T) {
	t.Parallel()
	a := &answers{errs: []serverError{"TRYAGAIN later"}}
	g, ctx, key := answering(t, a)
	boss := errors.New("the boss says stop")
	ctx, cancel := context.WithCancelCause(ctx)
	a.then = func() { cancel(boss) }
	err := g.Set(ctx, key, 1, 0)
	require.ErrorIs(t, err, boss)
	require.ErrorContains(t, err, "nothing was written")
	require.True(t, redis.HasErrorPrefix(err, "TRYAGAIN"), "%v", err)
	require.Equal(t, 1, a.asked)
}
