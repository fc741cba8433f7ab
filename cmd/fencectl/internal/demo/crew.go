package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/freeze"
)

// A member is a worker process as the director sees it.
type member struct {
	name    string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	orders  *json.Encoder
	replies chan reply // closed when the process has nothing more to say
	stderr  bytes.Buffer
	ended   chan struct{}
}

// hire starts a worker. command is the program and arguments that call Work.
func hire(command []string, s setup) (*member, error) {
	m := &member{name: s.Name, cmd: exec.Command(command[0], command[1:]...), replies: make(chan reply), ended: make(chan struct{})}
	m.cmd.Stderr = &m.stderr
	var err error
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := freeze.Start(m.cmd, func() { m.listen(stdout) }); err != nil {
		return nil, fmt.Errorf("start worker %s: %w", m.name, err)
	}
	m.orders = json.NewEncoder(m.stdin)
	if err := m.orders.Encode(s); err != nil {
		m.dismiss()
		return nil, m.gone(err)
	}
	return m, nil
}

// listen owns the process's end too: Wait must come after the last read.
func (m *member) listen(stdout io.Reader) {
	defer close(m.ended)
	in := json.NewDecoder(stdout)
	for {
		var r reply
		if in.Decode(&r) != nil {
			break
		}
		m.replies <- r
	}
	close(m.replies)
	_ = m.cmd.Wait() // what it wrote to stderr says more than its status
}

// tell gives an order and returns the reply.
func (m *member) tell(ctx context.Context, o order) (reply, error) {
	if err := m.orders.Encode(o); err != nil {
		m.dismiss()
		return reply{}, m.gone(err)
	}
	return m.hear(ctx)
}

// hear waits for the reply to an order.
func (m *member) hear(ctx context.Context) (reply, error) {
	select {
	case r, ok := <-m.replies:
		if !ok {
			<-m.ended
			return reply{}, m.gone(io.ErrUnexpectedEOF)
		}
		return r, nil
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}

func (m *member) gone(err error) error {
	return fmt.Errorf("worker %s has ended (%w): %s", m.name, err, strings.TrimSpace(m.stderr.String()))
}

// patience is how long a worker gets to release what it holds.
const patience = 2 * time.Second

// dismiss lets the process end by itself, ends it if it does not, and waits for
// that. It may be called again.
func (m *member) dismiss() {
	_ = m.stdin.Close() // where it fails the process has ended
	go func() {
		for range m.replies { // listen must not wait for a hearer
		}
	}()
	select {
	case <-m.ended:
		return
	case <-time.After(patience):
	}
	m.kill()
	<-m.ended
}

// kill ends the process at once, even a frozen one.
func (m *member) kill() {
	_ = m.cmd.Process.Kill() // where it fails the process has ended
}
