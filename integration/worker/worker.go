package worker

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/history"
)

const (
	patience = time.Minute      // for a worker to get somewhere
	endBound = 10 * time.Second // for a worker to end
)

// A Worker is the handle of one worker process. What it is told to do and cannot
// fails the test.
type Worker struct {
	testing.TB
	Name string

	journal *Journal
	in      io.WriteCloser
	process *process
	errors  *bytes.Buffer // its standard error, to be read when it has ended
	ended   chan struct{} // closed when everything that it said has been read

	mu      sync.Mutex
	changed chan struct{}
	reports []Report
	killed  bool
}

// Start starts a worker that ends with the test, and is recorded in the journal.
func Start(t testing.TB, j *Journal, c Config) *Worker {
	t.Helper()
	c.TTL = cmp.Or(c.TTL, 2*time.Second) // on a busy machine less is lost in passing
	c.LockTimeout = cmp.Or(c.LockTimeout, 10*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 5*time.Second)
	c.Mode = cmp.Or(c.Mode, Fenced)
	config, err := json.Marshal(c)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	// Under the race detector every good end would take a second.
	cmd.Env = append(os.Environ(), configEnv+"="+string(config), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	w := &Worker{
		TB: t, Name: c.Name, journal: j, errors: new(bytes.Buffer),
		ended: make(chan struct{}), changed: make(chan struct{}),
	}
	cmd.Stderr = w.errors
	w.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	w.process, err = start(cmd, func() { w.listen(out) })
	require.NoError(t, err)
	t.Cleanup(w.end)
	return w
}

func (w *Worker) listen(out io.Reader) {
	defer close(w.ended)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var r Report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			w.Errorf("worker %s: it said %q: %v", w.Name, lines.Text(), err)
			continue
		}
		w.journal.add(r)
		w.mu.Lock()
		w.reports = append(w.reports, r)
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
	}
}

// end ends the worker and checks that it ended in peace, unless it was killed.
func (w *Worker) end() {
	_ = w.in.Close() // which is what ends it
	_ = w.process.signal(syscall.SIGCONT)
	select {
	case <-w.process.done:
	case <-time.After(endBound):
		_ = w.process.signal(syscall.SIGKILL)
		<-w.process.done
		w.Errorf("worker %s did not end by itself", w.Name)
	}
	if w.killed {
		return
	}
	if w.process.err != nil || w.errors.Len() > 0 {
		w.Errorf("worker %s: %v\n%s", w.Name, w.process.err, w.errors)
	}
}

// Append orders an append and returns at once. Its name, which is returned, is
// unique in the journal.
func (w *Worker) Append(o Order) (op string) {
	w.Helper()
	o.Op = w.journal.order(w.Name)
	o.Amount = cmp.Or(o.Amount, 10)
	o.Patience = cmp.Or(o.Patience, 10*time.Minute)
	w.send(o)
	return o.Op
}

// Do orders an append and waits until it is done and the lock is given up.
func (w *Worker) Do(o Order) Report {
	w.Helper()
	op := w.Append(o)
	done := w.Await(op, Done)
	if done.Fence != nil {
		w.Await(op, Released)
	}
	return done
}

// Go lets the append go on that holds.
func (w *Worker) Go() {
	w.Helper()
	w.send(Order{Go: true})
}

func (w *Worker) send(o Order) {
	w.Helper()
	line, err := json.Marshal(o)
	require.NoError(w, err)
	_, err = w.in.Write(append(line, '\n'))
	require.NoError(w, err)
}

// Stop freezes the worker, as a long pause of its runtime or its host would.
func (w *Worker) Stop() {
	w.Helper()
	require.NoError(w, w.process.signal(syscall.SIGSTOP))
}

// Continue undoes Stop.
func (w *Worker) Continue() {
	w.Helper()
	require.NoError(w, w.process.signal(syscall.SIGCONT))
}

// Kill ends the worker by SIGKILL and returns when it is dead. An append that was
// on its way may be there or not.
func (w *Worker) Kill() {
	w.Helper()
	w.killed = true
	require.NoError(w, w.process.signal(syscall.SIGKILL))
	<-w.process.done
}

// Await returns the report of a step, which may have come already.
func (w *Worker) Await(op string, s Step) Report {
	w.Helper()
	return w.AwaitReport(func(r Report) bool { return r.Op == op && r.Step == s }, "%s of %s", s, op)
}

// AwaitEvent returns the first report of an event of the locker.
func (w *Worker) AwaitEvent(event string) Report {
	w.Helper()
	return w.AwaitReport(func(r Report) bool { return r.Event == event }, "event %s", event)
}

// AwaitRefusal returns the first report of a raise that was refused for the reason
// that a sentinel names.
func (w *Worker) AwaitRefusal(sentinel string) Report {
	w.Helper()
	return w.AwaitReport(func(r Report) bool { return r.Event == "refused" && slices.Contains(r.Is, sentinel) }, "refusal: %s", sentinel)
}

// AwaitReport returns the first report that is wanted.
func (w *Worker) AwaitReport(wanted func(Report) bool, what string, args ...any) Report {
	w.Helper()
	late := time.After(patience)
	for seen := 0; ; {
		w.mu.Lock()
		reports, changed := w.reports, w.changed
		w.mu.Unlock()
		for _, r := range reports[seen:] {
			if wanted(r) {
				return r
			}
		}
		seen = len(reports)
		select {
		case <-changed:
		case <-w.ended:
			<-w.process.done
			require.FailNow(w, "worker "+w.Name+" has ended before "+fmt.Sprintf(what, args...), "%s", w.errors)
		case <-late:
			require.FailNow(w, "worker "+w.Name+" is late with "+fmt.Sprintf(what, args...), "it said\n%s", w.said())
		}
	}
}

// Reports returns what the worker has said so far.
func (w *Worker) Reports() []Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reports[:len(w.reports):len(w.reports)]
}

func (w *Worker) said() string {
	var b strings.Builder
	for _, r := range w.Reports() {
		line, _ := json.Marshal(r)
		b.Write(append(line, '\n'))
	}
	return b.String()
}

// RequireOutcome checks what an append came to, and that its error is all of the
// sentinels.
func (w *Worker) RequireOutcome(done Report, want history.Outcome, is ...string) {
	w.Helper()
	require.Equal(w, want, done.Outcome, "%s: %s", done.Op, done.Error)
	require.Subset(w, done.Is, is, "%s: %s", done.Op, done.Error)
}
