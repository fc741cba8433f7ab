package workload

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
)

// A program is a worker from the inside.
type program struct {
	Config
	pool  *pgxpool.Pool
	rdb   *redis.Client
	locks locks
	store store
	goOn  chan struct{}

	mu    sync.Mutex
	out   *json.Encoder
	calls int
	op    string // of current, for those who report from elsewhere

	current Order // the one operation that runs
}

// Work is the worker: it reads a Config and then Orders from in, a line each, and
// writes Reports to out, until in ends.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	p := &program{goOn: make(chan struct{}, 1), out: json.NewEncoder(out)}
	lines := bufio.NewScanner(in)
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &p.Config) != nil {
		return errors.New(`this command is for "fencectl torture" alone, which talks to it`)
	}
	// The end of the input ends everything, so that no worker outlives its director.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	closing, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer closing()
	orders, failed := make(chan Order, 1), make(chan error, 1)
	go func() {
		failed <- p.listen(lines, orders)
		cancel()
		close(orders)
		close(p.goOn)
	}()
	for o := range orders {
		p.perform(ctx, o)
	}
	return <-failed
}

func (p *program) listen(lines *bufio.Scanner, orders chan<- Order) error {
	for lines.Scan() {
		var o Order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		if !o.Go {
			orders <- o
			continue
		}
		select {
		case p.goOn <- struct{}{}:
		default: // it was not holding any more
		}
	}
	return lines.Err()
}

// step reports that the operation has got somewhere, and waits there once if it was
// told to.
func (p *program) step(s Step, r Report) {
	r.Step = s
	p.report(r)
	if i := slices.Index(p.current.Hold, s); i >= 0 {
		p.current.Hold = slices.Delete(p.current.Hold, i, i+1)
		<-p.goOn
	}
}

// about is a report on a fence.
func about(f guard.Fence) Report {
	return Report{Resource: f.Resource, Token: f.Token, Nonce: f.Nonce}
}

// call reports a call before and after it: for each row of a transaction one.
func (p *program) call(c Call, do func(r *Report), rows ...history.Row) {
	reports := make([]Report, len(rows))
	for i, row := range rows {
		p.mu.Lock()
		p.calls++
		reports[i] = Report{Call: c, Number: p.calls, Op: row.Op, Resource: row.Resource, Token: row.Token, Nonce: row.Nonce}
		p.mu.Unlock()
		p.report(reports[i])
	}
	var result Report
	do(&result)
	if len(rows) > 1 && result.Outcome == history.Refused {
		result.Outcome = history.Failed // one of the fences may still be in force
	}
	for _, r := range reports {
		r.Ended, r.Outcome, r.Value, r.Error, r.Is = true, result.Outcome, result.Value, result.Error, result.Is
		p.report(r)
	}
}

func (p *program) report(r Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.At, r.Worker, r.Op = Now(), p.Name, cmp.Or(r.Op, p.op)
	if err := p.out.Encode(r); err != nil {
		if _, bug := errors.AsType[*json.MarshalerError](err); bug {
			fmt.Fprintln(os.Stderr, "worker:", err)
		}
		os.Exit(1) // the director has gone
	}
}

// observe reports what the locker tells, except what the steps tell already.
func (p *program) observe(e guard.Event) {
	switch e.Kind {
	case guard.EventAcquired, guard.EventRaised, guard.EventCommitted, guard.EventRenewed:
		return
	}
	r := about(e.Fence)
	r.Event = e.Kind.String()
	r.explain(e.Err)
	p.report(r)
}
