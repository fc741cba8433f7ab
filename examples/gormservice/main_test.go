//go:build unix

package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/examples/internal/exampletest"
	"github.com/go-fencing/fencing/examples/internal/servers"
	"github.com/go-fencing/fencing/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestGORMService(t *testing.T) {
	t.Parallel()
	program := exampletest.Build(t)

	t.Run("ConcurrentOrdersAtTwoProcessesSellEachUnitOnce", func(t *testing.T) {
		t.Parallel()
		s := exampletest.Servers(t)
		processes := []*process{start(t, program, s), start(t, program, s)}
		processes[0].want(t, 201, "POST", "/articles", `{"sku":"pen","stock":12}`)
		var sold, soldOut atomic.Int32
		var buyers sync.WaitGroup
		for i := range 20 {
			buyers.Go(func() {
				for { // as the statuses say
					switch status, _ := processes[i%2].call(t, "POST", "/articles/pen/orders", fmt.Sprintf(`{"buyer":"buyer-%d"}`, i)); status {
					case 201:
						sold.Add(1)
						return
					case 410:
						soldOut.Add(1)
						return
					case 409, 503:
					default:
						t.Errorf("status %d", status)
						return
					}
				}
			})
		}
		buyers.Wait()
		require.EqualValues(t, 12, sold.Load())
		require.EqualValues(t, 8, soldOut.Load())
		a := processes[1].article(t, "pen")
		require.Zero(t, a.Stock)
		require.Len(t, a.buyers(), 12, "each order is of another buyer")
	})

	// The service asks whether a buyer has credit between its read and its write,
	// and is stopped there until another process has sold.
	pause := func(t *testing.T, flags ...string) (late int, says string, after article) {
		asked, answer := make(chan struct{}), make(chan struct{})
		credit := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.FormValue("buyer") == "late" {
				close(asked)
				<-answer
			}
		}))
		t.Cleanup(credit.Close)
		s := exampletest.Servers(t)
		flags = append(flags, "-ttl=500ms", "-credit="+credit.URL)
		a, b := start(t, program, s, flags...), start(t, program, s, flags...)
		a.want(t, 201, "POST", "/articles", `{"sku":"pen","stock":12}`)
		replied := make(chan struct{})
		go func() {
			defer close(replied)
			late, says = a.call(t, "POST", "/articles/pen/orders", `{"buyer":"late"}`)
		}()
		<-asked
		require.NoError(t, a.cmd.Process.Signal(syscall.SIGSTOP))
		require.Eventually(t, func() bool { // until the lock has run out
			status, _ := b.call(t, "POST", "/articles/pen/orders", `{"buyer":"next"}`)
			return status == 201
		}, time.Minute, 10*time.Millisecond)
		close(answer) // not before it is certain that the process has stopped
		require.NoError(t, a.cmd.Process.Signal(syscall.SIGCONT))
		<-replied
		return late, says, b.article(t, "pen")
	}

	t.Run("S1_APausedRequestIsRefused", func(t *testing.T) {
		t.Parallel()
		status, says, after := pause(t)
		require.Equal(t, 409, status, says)
		require.Contains(t, says, `fence of \"article:pen\" is stale`)
		require.Equal(t, 11, after.Stock)
		require.Equal(t, map[string]bool{"next": true}, after.buyers())
	})

	t.Run("S1_UnderTheLockAloneAUnitIsSoldTwice", func(t *testing.T) {
		t.Parallel()
		status, says, after := pause(t, "-unguarded")
		require.Equal(t, 201, status, says)
		require.Equal(t, 11, after.Stock)
		require.Len(t, after.buyers(), 2, "two orders, one unit booked: %+v", after)
	})

	t.Run("S38_RawSQLIsGuardedToo", func(t *testing.T) {
		t.Parallel()
		p := start(t, program, exampletest.Servers(t))
		p.want(t, 201, "POST", "/articles", `{"sku":"pen","stock":3}`)
		p.want(t, 200, "POST", "/articles/pen/restock", `{"units":4}`)
		require.Contains(t, p.want(t, 500, "PUT", "/articles/pen/stock", `{"stock":1000}`), `write to \"articles\": no fence in the context`)
		require.Equal(t, 7, p.article(t, "pen").Stock)
		p.want(t, 404, "POST", "/articles/ink/restock", `{"units":4}`)
		p.want(t, 404, "POST", "/articles/ink/orders", `{"buyer":"ann"}`)
		p.want(t, 404, "GET", "/articles/ink", "")
		p.want(t, 400, "POST", "/articles", `{`)
	})

	t.Run("ItStartsItsOwnServersAndStops", func(t *testing.T) {
		t.Parallel()
		p := start(t, program, servers.Servers{})
		p.want(t, 201, "POST", "/articles", `{"sku":"pen","stock":1}`)
		p.want(t, 201, "POST", "/articles/pen/orders", `{"buyer":"ann"}`)
		p.want(t, 410, "POST", "/articles/pen/orders", `{"buyer":"bob"}`)
		require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
		require.NoError(t, p.cmd.Wait(), "%s", &p.stderr)
	})

	t.Run("AnAddressThatCannotBeReadIsNotRepeated", func(t *testing.T) {
		t.Parallel()
		exampletest.RequireSecrecy(t, program)
	})
}

// A process is one that serves.
type process struct {
	cmd    *exec.Cmd
	url    string
	stderr bytes.Buffer
}

func start(t *testing.T, program string, s servers.Servers, flags ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(program, append(flags, "-listen=127.0.0.1:0")...)}
	p.cmd.Env = exampletest.Environment(s)
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
			_ = p.cmd.Process.Signal(os.Interrupt)
			_ = p.cmd.Wait()
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = p.cmd.Wait()
		exampletest.SkipUninstalled(t, s, p.stderr.String())
		require.NoError(t, err, "%s", &p.stderr)
	}
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	require.True(t, ok, line)
	p.url = url
	return p
}

// call returns the status and the body of a reply; 0 if there is none.
func (p *process) call(t *testing.T, method, path, body string) (status int, says string) {
	request, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return 0, err.Error()
	}
	return reply.StatusCode, string(text)
}

func (p *process) want(t *testing.T, status int, method, path, body string) (says string) {
	t.Helper()
	got, says := p.call(t, method, path, body)
	require.Equal(t, status, got, "%s %s: %s", method, path, says)
	return says
}

type article struct {
	Stock  int
	Orders []struct{ Buyer string }
}

func (p *process) article(t *testing.T, sku string) (a article) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(p.want(t, 200, "GET", "/articles/"+sku, "")), &a))
	return a
}

func (a article) buyers() map[string]bool {
	set := map[string]bool{}
	for _, o := range a.Orders {
		set[o.Buyer] = true
	}
	return set
}
