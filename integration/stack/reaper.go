package stack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// reaperEnv turns the test binary into the reaper.
const reaperEnv = "FENCING_TEST_REAPER"

// A reaper is a process that outlives this one, however that ends, and removes
// what it left behind. It is told on its standard input what there is.
type reaper struct {
	cmd *exec.Cmd

	mu sync.Mutex
	in io.WriteCloser
}

func startReaper() (*reaper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), reaperEnv+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // not to be hit by an interrupt at the terminal
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &reaper{cmd: cmd, in: in}, cmd.Start()
}

// watch names something to be removed at the end. That it is gone by then is fine.
func (r *reaper) watch(kind, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintln(r.in, kind, id) // without a reaper the tests clean up all the same
}

// close returns when everything has been removed.
func (r *reaper) close() error {
	r.mu.Lock()
	_ = r.in.Close()
	r.mu.Unlock()
	return r.cmd.Wait()
}

func reaping() bool { return os.Getenv(reaperEnv) != "" }

func reap() {
	var things []string
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		things = append(things, lines.Text())
	}
	d, err := within(engineBound, connect)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stack: containers may be left over:", err)
		os.Exit(1)
	}
	code := 0
	for pass := range 2 { // a network cannot be removed before its containers
		for _, thing := range things {
			kind, id, _ := strings.Cut(thing, " ")
			if (kind == "container") != (pass == 0) {
				continue
			}
			if err := d.remove(kind, id); err != nil && !errdefs.IsNotFound(err) {
				fmt.Fprintf(os.Stderr, "stack: %s %s is left over: %v\n", kind, id, err)
				code = 1
			}
		}
	}
	os.Exit(code)
}

func (d *docker) remove(kind, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if kind == "network" {
		_, err := d.client.NetworkRemove(ctx, id, client.NetworkRemoveOptions{})
		return err
	}
	_, err := d.client.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	return err
}
