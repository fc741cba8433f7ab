package redisguard

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediscluster"
)

//go:embed check.lua
var checkLua string

//go:embed body.lua
var bodyLua string

//go:embed command.lua
var commandLua string

//go:embed leave.lua
var leaveLua string

// A script of the caller's is between these. The first is on one line, so that the
// lines in errors of the script are its own.
var before = oneLine("do\n" + currentLua + checkLua + "end\n" + bodyLua + leaveLua + "end)(function(KEYS, ARGV)\n")

const after = "\nend)"

func oneLine(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			b.WriteString(line + " ")
		}
	}
	return b.String()
}

// A Script is Lua to be run under a fence. It is safe for concurrent use.
type Script struct{ source, hash, wrong string }

// NewScript returns a script with the body of a function, as EVAL takes it: it has
// its own KEYS and ARGV, without those of the fences, and may return wherever it
// likes. A shebang line is refused when it is run.
func NewScript(body string) *Script {
	s := newScript(before + body + after)
	if strings.HasPrefix(body, "#!") {
		s.wrong = "a script under a fence has no shebang line; leave it out"
	}
	return s
}

func newScript(source string) *Script {
	sum := sha1.Sum([]byte(source)) // Redis' own name for it
	return &Script{source: source, hash: hex.EncodeToString(sum[:])}
}

// once is a command that the client does not repeat by itself: its first attempt may
// have been done, or may arrive when the second one has long been answered.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

func (c once) Clone() redis.Cmder { return once{c.Cmd.Clone().(*redis.Cmd)} }

// patience is how often a server is asked again that has refused to look at a script.
const (
	patience  = 4
	firstRest = 10 * time.Millisecond
)

// enter runs a script and returns its reply and the fences that it was run under.
func (g *Guard) enter(ctx context.Context, s *Script, keys []string, args []any) (reply any, held []guard.Fence, err error) {
	if s == nil {
		return nil, nil, errors.New("the script is nil")
	}
	if s.wrong != "" {
		return nil, nil, errors.New(s.wrong)
	}
	if len(keys)+len(args) > maxArguments {
		return nil, nil, fmt.Errorf("%d keys and arguments are more than %d; write them in several calls", len(keys)+len(args), maxArguments)
	}
	e, err := g.entryOf(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	command := make([]any, 0, 4+3*len(e.held)+len(keys)+len(args))
	command = append(command, "evalsha", s.hash, len(e.keys)+len(keys))
	for _, key := range e.keys {
		command = append(command, key)
	}
	for _, key := range keys {
		command = append(command, key)
	}
	command = append(command, len(e.held))
	for _, f := range e.held {
		command = append(command, f.Token.String(), f.Nonce)
	}
	answer, err := g.send(ctx, s, append(command, args...))
	if err != nil {
		rediscluster.Heed(g.rdb, err)
		return nil, nil, outcome(ctx, err, e.keys)
	}
	reply, err = read(answer, e.held)
	return reply, e.held, err
}

// send sends the script by its hash, by itself where the server does not know it, and
// again where the server says that it has not begun with it.
func (g *Guard) send(ctx context.Context, s *Script, command []any) (reply []any, err error) {
	for try, rest := 1, firstRest; ; try, rest = try+1, 2*rest {
		if ctx.Err() != nil { // a client for Cluster would not look
			return nil, notSent{context.Cause(ctx)}
		}
		cmd := redis.NewCmd(ctx, command...)
		cmd.SetFirstKeyPos(3)
		_ = g.rdb.Process(ctx, once{cmd}) // cmd has it
		reply, err = cmd.Slice()
		switch {
		case redis.HasErrorPrefix(err, "NOSCRIPT") && command[0] == "evalsha":
			command[0], command[1] = "eval", s.source
			continue
		case !notBegun(err) || try >= patience: // one more where the last one found no script
			return reply, err
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return nil, because(ctx, err)
		}
	}
}

// read reads the answer of leave.lua or check.lua.
func read(answer []any, held []guard.Fence) (any, error) {
	status, _ := first(answer).(int64)
	switch {
	case status == 1 && len(answer) == 2:
		return answer[1], nil
	case status == 1:
		return nil, nil
	case status == 2 && len(answer) == 2:
		text, _ := answer[1].(string)
		return nil, failure(text)
	case status == 0 && (len(answer) == 2 || len(answer) == 5):
		if i, _ := answer[1].(int64); i >= 1 && i <= int64(len(held)) {
			f := held[i-1]
			return nil, current(f, answer).Enter(f)
		}
	}
	return nil, fmt.Errorf("unexpected reply %v", answer)
}
