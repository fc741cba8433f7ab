package torture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/freeze"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/internal/faultlink"
)

const (
	patience  = 4 * time.Second  // of a worker, for a lock
	stuck     = 90 * time.Second // beyond every bound of a worker
	dismissal = 2 * time.Second  // for a worker to end by itself
)

var (
	errGone  = errors.New("the worker has ended")
	errStuck = errors.New("the worker got stuck")
	errLate  = errors.New("not yet")
)

// A member is a worker process and its own links to the servers.
type member struct {
	name     string
	redis    *faultlink.Link
	postgres *faultlink.Link
	journal  *journal

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer // to be read once it has ended
	ended  chan struct{}

	mu      sync.Mutex
	changed chan struct{}
	op      string            // the last one that was ordered
	said    []workload.Report // about it
}

func hire(command []string, c workload.Config, j *journal, redis, postgres string) (m *member, err error) {
	m = &member{name: c.Name, journal: j, ended: make(chan struct{}), changed: make(chan struct{})}
	if m.redis, err = faultlink.New(redis); err != nil {
		return nil, err
	}
	if m.postgres, err = faultlink.New(postgres); err != nil {
		return nil, errors.Join(err, m.redis.Close())
	}
	c.RedisLink, c.PostgresLink = m.redis.Addr(), m.postgres.Addr()
	if err := m.start(command, c); err != nil {
		return nil, errors.Join(err, m.redis.Close(), m.postgres.Close())
	}
	return m, nil
}

func (m *member) start(command []string, c workload.Config) error {
	m.cmd = exec.Command(command[0], command[1:]...)
	m.cmd.Stderr = &m.stderr
	var err error
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := freeze.Start(m.cmd, func() { m.listen(stdout) }); err != nil {
		return fmt.Errorf("start worker %s: %w", m.name, err)
	}
	return m.send(c)
}

// listen owns the process's end too: Wait must come after the last read.
func (m *member) listen(stdout io.Reader) {
	defer close(m.ended)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r workload.Report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // the line in which it was killed
		}
		m.journal.add(r)
		m.mu.Lock()
		if r.Op == m.op {
			m.said = append(m.said, r)
			close(m.changed)
			m.changed = make(chan struct{})
		}
		m.mu.Unlock()
	}
	_ = m.cmd.Wait() // what it wrote to stderr says more than its status
}

func (m *member) send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := m.stdin.Write(append(line, '\n')); err != nil {
		return m.gone()
	}
	return nil
}

// gone says why a worker has ended, which none does by itself.
func (m *member) gone() error {
	select {
	case <-m.ended:
		return fmt.Errorf("%s: %w: %s", m.name, errGone, strings.TrimSpace(m.stderr.String()))
	case <-time.After(dismissal):
		return fmt.Errorf("%s: %w", m.name, errGone)
	}
}

// order gives an order and returns at once.
func (m *member) order(o workload.Order) (op string, err error) {
	o.Patience = patience
	m.journal.order(m.name, &o)
	m.mu.Lock()
	m.op, m.said = o.Op, nil
	m.mu.Unlock()
	return o.Op, m.send(o)
}

func (m *member) goOn() error { return m.send(workload.Order{Go: true}) }

// await waits until the last order has come to one of the steps, for at most bound:
// errLate then, or errStuck if the bound was beyond all those of a worker.
func (m *member) await(ctx context.Context, bound time.Duration, steps ...workload.Step) (workload.Report, error) {
	late := time.After(bound)
	for {
		m.mu.Lock()
		changed := m.changed
		for _, r := range m.said {
			if slices.Contains(steps, r.Step) {
				m.mu.Unlock()
				return r, nil
			}
		}
		m.mu.Unlock()
		select {
		case <-changed:
		case <-m.ended:
			return workload.Report{}, m.gone()
		case <-ctx.Done():
			return workload.Report{}, context.Cause(ctx)
		case <-late:
			if bound == stuck {
				return workload.Report{}, fmt.Errorf("%s: %w before %s of %s", m.name, errStuck, join(steps), m.op)
			}
			return workload.Report{}, errLate
		}
	}
}

// finish waits until the last order is done and the lock is given up.
func (m *member) finish(ctx context.Context) error {
	_, err := m.await(ctx, stuck, workload.Released)
	return err
}

// token returns the one that the last order was granted last.
func (m *member) granted() (r workload.Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, said := range m.said {
		if said.Step == workload.Granted {
			r = said
		}
	}
	return r
}

func (m *member) freeze() error { return ignoreEnd(m, freeze.Stop(m.cmd.Process)) }
func (m *member) wake() error   { return ignoreEnd(m, freeze.Wake(m.cmd.Process)) }

// ignoreEnd passes over the failure to signal a process that has ended: whoever
// waits for it will say so.
func ignoreEnd(m *member, err error) error {
	select {
	case <-m.ended:
		return nil
	default:
		return err
	}
}

// kill ends the process at once, even a frozen one, and its links.
func (m *member) kill() error {
	_ = m.cmd.Process.Kill() // where it fails the process has ended
	<-m.ended
	return errors.Join(m.redis.Close(), m.postgres.Close())
}

// dismiss lets the process end by itself, and ends it if it does not.
func (m *member) dismiss() error {
	_ = m.stdin.Close() // where it fails the process has ended
	_ = freeze.Wake(m.cmd.Process)
	select {
	case <-m.ended:
	case <-time.After(dismissal):
	}
	return m.kill()
}
