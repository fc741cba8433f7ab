package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/examples/internal/servers"
)

// direct runs the sale: the first workers are frozen with a decision made and not
// yet written, until one of the others has sold something.
func direct(ctx context.Context, pool *pgxpool.Pool, s servers.Servers, unguarded bool) error {
	ctx, cancel := context.WithCancel(ctx)
	var crew []*process
	defer func() { // nobody is left behind, frozen or not
		cancel()
		for _, p := range crew {
			<-p.ended
		}
	}()
	for i := range workers {
		p, err := hire(ctx, s, fmt.Sprintf("worker-%d", i+1), unguarded, i < frozen, clicks(i))
		if err != nil {
			return err
		}
		crew = append(crew, p)
		if i < frozen {
			if err := p.freeze(); err != nil {
				return err
			}
		}
	}
	if err := firstOrder(ctx, pool); err != nil {
		return err
	}
	for _, p := range crew[:frozen] {
		if err := p.thaw(); err != nil {
			return err
		}
	}
	for _, p := range crew {
		<-p.ended
		if p.err != nil {
			return fmt.Errorf("%s: %w", p.name, p.err)
		}
	}
	return nil
}

// clicks returns the buyers that a worker serves. The two clicks of a buyer go to
// different workers.
func clicks(worker int) (names []string) {
	for buyer := range buyers {
		if buyer%(workers/2) == worker%(workers/2) {
			names = append(names, fmt.Sprintf("buyer-%02d", buyer+1))
		}
	}
	return names
}

// firstOrder returns when there is an order.
func firstOrder(ctx context.Context, pool *pgxpool.Pool) error {
	for {
		if r, err := look(ctx, pool); err != nil || r.orders > 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A process is a worker as the director sees it.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	halted chan struct{} // closed when the worker has halted
	ended  chan struct{} // closed when it has ended, with err
	err    error
}

// hire runs this program again, as a worker. Addresses go by the environment,
// which other users of the machine cannot see.
func hire(ctx context.Context, s servers.Servers, name string, unguarded, halt bool, buyers []string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	flags := []string{"-worker=" + name, fmt.Sprintf("-unguarded=%t", unguarded), fmt.Sprintf("-halt=%t", halt)}
	cmd := exec.CommandContext(ctx, self, append(flags, buyers...)...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+s.Postgres, "REDIS_URL="+s.Redis)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: cmd, stdin: stdin, halted: make(chan struct{}), ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go p.follow(stdout)
	return p, nil
}

// follow prints what the worker has to say, until it ends.
func (p *process) follow(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		fmt.Printf("%s %s\n", p.name, lines.Text())
		if strings.HasSuffix(lines.Text(), halted) {
			close(p.halted)
		}
	}
	p.err = p.cmd.Wait()
	close(p.ended)
}

// freeze stops the worker as soon as it has halted.
func (p *process) freeze() error {
	select {
	case <-p.halted:
		return freeze(p.cmd.Process)
	case <-p.ended:
		return errors.Join(fmt.Errorf("%s has ended too early", p.name), p.err)
	}
}

// thaw lets a frozen worker go on.
func (p *process) thaw() error {
	return errors.Join(p.stdin.Close(), thaw(p.cmd.Process))
}
