package faultlink_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-fencing/fencing/internal/faultlink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A server answers each line with its name, the line, and how many it has had.
type server struct {
	net.Listener
	requests atomic.Int32
}

func newServer(t *testing.T, name string) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{Listener: l}
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					_, _ = fmt.Fprintf(c, "%s %s %d\n", name, lines.Text(), s.requests.Add(1))
				}
			}()
		}
	}()
	return s
}

func newLink(t *testing.T, target string) *faultlink.Link {
	t.Helper()
	l, err := faultlink.New(target)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

type client struct {
	*testing.T
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, l *faultlink.Link) *client {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) send(line string) {
	c.Helper()
	_, err := fmt.Fprintln(c, line)
	require.NoError(c, err)
}

func (c *client) receive(within time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	return c.lines.ReadString('\n')
}

func (c *client) requireReply(want string) {
	c.Helper()
	got, err := c.receive(10 * time.Second)
	require.NoError(c, err)
	require.Equal(c, want+"\n", got)
}

func (c *client) requireNothing() {
	c.Helper()
	_, err := c.receive(50 * time.Millisecond)
	require.ErrorIs(c, err, os.ErrDeadlineExceeded, "the connection is open, and silent")
}

func (c *client) requireEnd() {
	c.Helper()
	_, err := c.receive(10 * time.Second)
	require.Error(c, err)
	require.NotErrorIs(c, err, os.ErrDeadlineExceeded, "the connection should have ended")
}

func TestLinkForwardsUntilItIsCutAndDeliversAfterwards(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a")
	l := newLink(t, s.Addr().String())
	c := dial(t, l)
	c.send("one")
	c.requireReply("a one 1")

	l.Cut()
	c.send("two")
	late := dial(t, l)
	late.send("three")
	c.requireNothing()
	late.requireNothing()
	require.EqualValues(t, 1, s.requests.Load(), "nothing reaches the server")

	l.Heal()
	_, err := c.receive(10 * time.Second)
	require.NoError(t, err)
	_, err = late.receive(10 * time.Second)
	require.NoError(t, err)
	require.EqualValues(t, 3, s.requests.Load())
	require.Zero(t, l.Lost())
}

func TestSilenceLosesRepliesOnly(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a")
	l := newLink(t, s.Addr().String())
	c := dial(t, l)
	l.Silence()
	c.send("one")
	require.Eventually(t, func() bool { return l.Lost() == 1 }, 10*time.Second, time.Millisecond)
	require.EqualValues(t, 1, s.requests.Load(), "the server has done it")
	c.requireNothing()

	l.Heal()
	c.requireEnd()
	c = dial(t, l)
	c.send("two")
	c.requireReply("a two 2")
}

func TestLoseReplyHitsOneRequest(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a")
	l := newLink(t, s.Addr().String())
	l.LoseReply("acquire")
	c, other := dial(t, l), dial(t, l)
	c.send("ping")
	c.requireReply("a ping 1")
	other.send("ping")
	other.requireReply("a ping 2")
	c.send("acquire")
	c.requireEnd()
	require.Equal(t, 1, l.Lost())
	other.send("acquire")
	other.requireReply("a acquire 4")
	require.Equal(t, 1, l.Lost())
}

func TestRetargetLeadsElsewhereAndEndsWhatWasOpen(t *testing.T) {
	t.Parallel()
	a, b := newServer(t, "a"), newServer(t, "b")
	l := newLink(t, a.Addr().String())
	c := dial(t, l)
	c.send("one")
	c.requireReply("a one 1")
	l.Retarget(b.Addr().String())
	c.requireEnd()
	c = dial(t, l)
	c.send("two")
	c.requireReply("b two 1")
}

func TestAnEndIsPassedOn(t *testing.T) {
	t.Parallel()
	a := newServer(t, "a")
	l := newLink(t, a.Addr().String())
	c := dial(t, l)
	c.send("one")
	c.requireReply("a one 1")
	l.Reset()
	c.requireEnd()
}

func TestCloseEndsACutLink(t *testing.T) {
	t.Parallel()
	a := newServer(t, "a")
	l, err := faultlink.New(a.Addr().String())
	require.NoError(t, err)
	c := dial(t, l)
	l.Cut()
	c.send("one")
	require.NoError(t, l.Close())
	c.requireEnd()
}
