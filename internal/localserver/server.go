package localserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// A server is what Postgres, Redis and PgBouncer have in common.
type server struct {
	*process
	port  int
	end   os.Signal // asks for a clean end
	ready func(context.Context) error
}

// Addr returns the server's address, 127.0.0.1:port.
func (s *server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Dir returns the server's directory. Its log is there in server.log.
func (s *server) Dir() string { return s.dir }

// PID returns the process id of the server, or 0 while it does not run.
func (s *server) PID() int { return s.pid() }

// Stop ends the server cleanly, within 20s or else by force, and removes its
// directory. A second call does nothing.
func (s *server) Stop() error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	return errors.Join(s.halt(), s.remove())
}

// Kill ends the server by SIGKILL, as a crash would, and waits until the processes
// that it forked have ended too. Restart brings it back.
func (s *server) Kill() error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	return s.kill()
}

// Restart starts the server again in the same directory and at the same port,
// after a clean end if it still runs, and waits until it answers.
func (s *server) Restart(ctx context.Context) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if err := s.halt(); err != nil {
		return err
	}
	if err := s.start(); err != nil {
		return err
	}
	return s.await(ctx, s.ready)
}

// Pause stops the server and the processes that it forked by SIGSTOP: connections
// stay open and nothing answers.
func (s *server) Pause() error { return s.signal("pause", suspend) }

// Resume undoes Pause.
func (s *server) Resume() error { return s.signal("resume", unsuspend) }

func (s *server) signal(what string, f func(*os.Process) error) error {
	child, _, err := s.current()
	if err != nil {
		return err
	}
	if err := f(child); err != nil {
		return fmt.Errorf("localserver: %s %s: %w", what, s.name, err)
	}
	return nil
}

func (s *server) kill() error {
	child, done, err := s.current()
	if err != nil {
		return err
	}
	// Stopped, it cannot fork past the list of its children.
	if err := stop(child); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("localserver: kill %s: %w", s.name, err)
	}
	family, err := children(child.Pid)
	if err != nil {
		return fmt.Errorf("localserver: kill %s: %w", s.name, err)
	}
	if err := child.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("localserver: kill %s: %w", s.name, err)
	}
	<-done
	bury(family)
	return nil
}

// bury waits until the orphans of a killed server have ended, since Postgres does
// not start again beside them. Its backends end by themselves as soon as they
// notice; one that computes may notice late.
func bury(family []relative) {
	deadline := time.Now().Add(orphanTimeout)
	for _, r := range family {
		for first := true; r.alive(); first = false {
			switch {
			case time.Now().After(deadline):
				r.kill()
			case first: // it may have been paused
				r.resume()
			}
			time.Sleep(pollInterval)
		}
	}
}

// halt ends the server cleanly and keeps its directory.
func (s *server) halt() error {
	child, _, err := s.current()
	if err != nil {
		return nil // it has ended already
	}
	_ = unsuspend(child) // a stopped process does not end by a signal
	family, err := children(child.Pid)
	if err != nil {
		return fmt.Errorf("localserver: stop %s: %w", s.name, err)
	}
	err = s.process.end(s.end)
	bury(family)
	return err
}

// launch starts the server for the first time, at a port that configure is told.
// Another process can take the port before the server does, hence the tries.
func (s *server) launch(ctx context.Context, configure func(port int) error) error {
	var failure error
	for range 5 {
		port, err := FreePort()
		if err != nil {
			failure = err
			break
		}
		s.port = port
		if failure = configure(port); failure != nil {
			break
		}
		if failure = s.start(); failure != nil {
			break
		}
		if failure = s.await(ctx, s.ready); failure == nil {
			return nil
		}
		if !strings.Contains(strings.ToLower(failure.Error()), "address already in use") {
			break
		}
	}
	return errors.Join(failure, s.Stop())
}

// FreePort picks a loopback port below those that the system gives to outgoing
// connections (from 32768 on Linux, 49152 elsewhere): one of these could occupy the
// port of a server that is being restarted. Another process may take it first.
func FreePort() (int, error) {
	var failure error
	for range 100 {
		port := 15000 + rand.IntN(17000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
		failure = err
	}
	return 0, fmt.Errorf("localserver: no free port: %w", failure)
}

func closeQuietly(c io.Closer) { _ = c.Close() } // after a probe there is nothing to lose
