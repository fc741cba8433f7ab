package localserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-fencing/fencing/internal/child"
)

const (
	startTimeout  = time.Minute      // for a server to answer after its start
	stopTimeout   = 20 * time.Second // for a server to end by itself before it is killed
	orphanTimeout = 3 * time.Second  // for what a killed server forked
	pollInterval  = 20 * time.Millisecond
	logName       = "server.log"
	logLines      = 12 // of the server's log in an error
)

var (
	errStopped    = errors.New("the server was stopped, and its directory removed")
	errNotRunning = errors.New("the server is not running")
	errRunning    = errors.New("the server is running already")
)

// A process is one child that can be started again in the same directory.
type process struct {
	name string
	path string
	args []string
	env  []string // further ones
	dir  string
	user *account

	lifecycle sync.Mutex // held for the whole of a stop, kill or restart
	mu        sync.Mutex
	cmd       *exec.Cmd
	done      chan struct{} // closed when cmd has ended
	removed   bool
}

// newProcess makes the directory that the server owns.
func newProcess(name, path string, users ...string) (*process, error) {
	u, err := unprivileged(users...)
	if err != nil {
		return nil, fmt.Errorf("localserver: %s: %w", name, err)
	}
	dir, err := os.MkdirTemp("", "fencing-"+name+"-")
	if err != nil {
		return nil, fmt.Errorf("localserver: %s: %w", name, err)
	}
	if err := u.own(dir); err != nil {
		return nil, fmt.Errorf("localserver: %s: %w", name, errors.Join(err, os.RemoveAll(dir)))
	}
	return &process{name: name, path: path, dir: dir, user: u}, nil
}

func (p *process) command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = p.dir // the caller's directory may be closed to the server's user
	// Only these: PGOPTIONS, PGDATA and their like are meant for other servers.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "LC_ALL=C"}, p.env...)
	cmd.SysProcAttr = attributes(p.user)
	return cmd
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed {
		return fmt.Errorf("localserver: start %s: %w", p.name, errStopped)
	}
	if p.running() {
		return fmt.Errorf("localserver: start %s: %w", p.name, errRunning)
	}
	log, err := os.OpenFile(filepath.Join(p.dir, logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("localserver: start %s: %w", p.name, err)
	}
	cmd := p.command(context.Background(), p.path, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	done := make(chan struct{})
	err = child.Start(cmd, func() {
		_ = cmd.Wait() // the status says nothing that the log does not
		close(done)
	})
	_ = log.Close()
	if err != nil {
		return fmt.Errorf("localserver: start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	return nil
}

// running needs mu.
func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// current returns the running child and the channel that is closed when it ends.
func (p *process) current() (*os.Process, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil, nil, fmt.Errorf("localserver: %s: %w", p.name, errNotRunning)
	}
	return p.cmd.Process, p.done, nil
}

// await calls ready until it succeeds, the child ends, or the time is over.
func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	_, done, err := p.current()
	if err != nil {
		return fmt.Errorf("%w; the end of its log:\n%s", err, p.logTail())
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var failure error
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if failure == nil || ctx.Err() == nil { // the deadline is no reason by itself
			failure = err
		}
		select {
		case <-tick.C:
		case <-done:
			return fmt.Errorf("localserver: %s ended during its start; the end of its log:\n%s", p.name, p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("localserver: %s did not answer: %w (%w); the end of its log:\n%s", p.name, failure, context.Cause(ctx), p.logTail())
		}
	}
}

// end asks the child to end by sig, and kills it after stopTimeout.
func (p *process) end(sig os.Signal) error {
	child, done, err := p.current()
	if err != nil {
		return nil // it has ended already
	}
	if err := child.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("localserver: stop %s: %w", p.name, err)
	}
	select {
	case <-done:
		return nil
	case <-time.After(stopTimeout):
	}
	err = child.Kill()
	<-done
	return errors.Join(fmt.Errorf("localserver: %s was killed, because it did not end within %s", p.name, stopTimeout), err)
}

// remove forgets the server for good.
func (p *process) remove() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removed = true
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("localserver: %s: %w", p.name, err)
	}
	return nil
}

func (p *process) pid() int {
	child, _, err := p.current()
	if err != nil {
		return 0
	}
	return child.Pid
}

func (p *process) logTail() string {
	text, err := os.ReadFile(filepath.Join(p.dir, logName))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}
