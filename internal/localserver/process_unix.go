//go:build unix

package localserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

var (
	interrupt = syscall.SIGINT  // Postgres: fast shutdown
	terminate = syscall.SIGTERM // Redis: save if so configured, and end
)

// An account is the user that a server runs as; nil means the caller.
type account struct{ uid, gid uint32 }

// unprivileged returns the first of names that exists where the caller is root,
// because Postgres and PgBouncer refuse to run as root.
func unprivileged(names ...string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	names = append(names, "nobody")
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &account{uint32(uid), uint32(gid)}, nil
	}
	return nil, fmt.Errorf("it cannot run as root, and none of the users %q exists", names)
}

func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

func attributes(a *account) *syscall.SysProcAttr {
	if a == nil {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid}}
}

// signalAll signals the child and the processes that it forked. A child that has
// ended meanwhile needs no signal.
func signalAll(child *os.Process, family []relative, sig syscall.Signal) error {
	err := child.Signal(sig)
	for _, r := range family {
		if !r.alive() {
			continue
		}
		if e := syscall.Kill(r.pid, sig); e != nil && !errors.Is(e, syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("signal process %d: %w", r.pid, e))
		}
	}
	return err
}

// stop stops the child alone.
func stop(child *os.Process) error { return child.Signal(syscall.SIGSTOP) }

// suspend stops the child first, so that it cannot fork past the list of its
// children.
func suspend(child *os.Process) error {
	if err := stop(child); err != nil {
		return err
	}
	family, err := children(child.Pid)
	if err != nil {
		return errors.Join(err, child.Signal(syscall.SIGCONT))
	}
	return signalAll(child, family, syscall.SIGSTOP)
}

func unsuspend(child *os.Process) error {
	family, err := children(child.Pid)
	if err != nil {
		return errors.Join(err, child.Signal(syscall.SIGCONT))
	}
	return signalAll(child, family, syscall.SIGCONT)
}

// resume and kill ignore a process that has just ended: that is what they want.

func (r relative) resume() { _ = syscall.Kill(r.pid, syscall.SIGCONT) }
func (r relative) kill()   { _ = syscall.Kill(r.pid, syscall.SIGKILL) }
