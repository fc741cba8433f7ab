package localserver_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
)

const crashEnv = "FENCING_LOCALSERVER_CRASH"

// startAndWaitForDeath is the test binary as a process that is going to be killed.
func startAndWaitForDeath() {
	s, err := localserver.StartRedis(context.Background(), localserver.RedisOptions{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Addr(), s.Dir())
	select {}
}

func TestNoServerSurvivesTheProcessThatStartedIt(t *testing.T) {
	t.Parallel()
	startRedis(t, localserver.RedisOptions{}) // skips where there is none
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends the children of a killed process")
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), crashEnv+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
	require.True(t, ok && err == nil, "the helper said %q: %v", line, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) }) // nobody is left to remove it
	require.NoError(t, dial(addr))

	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	require.Eventually(t, func() bool { return dial(addr) != nil }, 10*time.Second, 10*time.Millisecond)
}

func TestAServerSurvivesTheThreadThatAskedForIt(t *testing.T) {
	t.Parallel()
	started := make(chan *localserver.Redis, 1)
	go func() {
		runtime.LockOSThread() // without unlocking: the thread ends with the goroutine
		s, err := localserver.StartRedis(context.Background(), localserver.RedisOptions{})
		if err != nil {
			t.Log(err)
		}
		started <- s
	}()
	s := <-started
	if s == nil {
		startRedis(t, localserver.RedisOptions{}) // skips or fails with the reason
	}
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	require.Never(t, func() bool { return dial(s.Addr()) != nil }, 300*time.Millisecond, 20*time.Millisecond)
}

func dial(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// A backend that is forked while the server is being killed must not be in the way
// of the next start.
func TestAKilledPostgresStartsAgainUnderAStormOfConnections(t *testing.T) {
	t.Parallel()
	s := startPostgres(t, localserver.PostgresOptions{Settings: map[string]string{"fsync": "off"}})
	storm, calm := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for storm.Err() == nil {
				if conn, err := pgx.Connect(storm, s.URL("")); err == nil { // it is down now and then
					_ = conn.Close(storm)
				}
			}
		})
	}
	defer clients.Wait()
	defer calm()
	for range 10 {
		require.NoError(t, s.Kill())
		require.NoError(t, s.Restart(t.Context()))
	}
}
