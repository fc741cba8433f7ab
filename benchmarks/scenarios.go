package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type env struct {
	engine engine
	peer   peer
	url    string
}

// A result is a figure, smaller is better, and what else is worth knowing.
type result struct {
	figure float64
	note   string
}

type scenario struct {
	name, unit string
	run        func(ctx context.Context, e env) (result, error)
	slices     int // of a run, in turn with those of the others: a machine changes its speed within seconds
	skip       func(p peer) bool
}

var scenarios = []scenario{
	{name: "uncontended, 1 caller", unit: "µs per acquire + release", run: func(ctx context.Context, e env) (result, error) { return uncontended(ctx, e, 1, 400) }, slices: 10},
	{name: "uncontended, 64 callers", unit: "µs per acquire + release, of all together", run: func(ctx context.Context, e env) (result, error) { return uncontended(ctx, e, 64, 4000) }, slices: 5},
	{name: "handoff to one parked waiter", unit: "µs from the call of release to the grant, p50", run: handoff, skip: elsewhere},
	{name: "drain of 50 waiters", unit: "ms until the last one has had the lock", run: drain, skip: elsewhere},
	{name: "8 processes on one lock", unit: "µs per lock, of all together", run: processes, skip: elsewhere},
	{name: "10,000 held leases", unit: "goroutines", run: hold, skip: func(p peer) bool { return p.name != "fencing" }},
}

func elsewhere(p peer) bool { return p.elsewhere }

// uncontended lets every caller lock a resource of its own, again and again.
func uncontended(ctx context.Context, e env, callers, times int) (result, error) {
	once := func(resource string) error {
		unlock, err := e.engine.lock(ctx, resource)
		if err != nil {
			return err
		}
		return unlock()
	}
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	run := func(times int) {
		for c := range callers {
			resource := fmt.Sprintf("own:%d", c)
			all.Go(func() {
				for range times / callers {
					if err := once(resource); err != nil {
						failed.Store(&err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	run(max(10*callers, times/4))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	run(times)
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	if err := failed.Load(); err != nil {
		return result{}, *err
	}
	n := float64(times / callers * callers)
	return result{
		figure: float64(took.Nanoseconds()) / 1000 / n,
		note:   fmt.Sprintf("%.0f allocations, %.0f bytes", float64(after.Mallocs-before.Mallocs)/n, float64(after.TotalAlloc-before.TotalAlloc)/n),
	}, nil
}

// handoff measures from the moment at which the holder lets go until the one waiter,
// another client, has the lock.
func handoff(ctx context.Context, e env) (result, error) {
	other, err := e.peer.open(e.url)
	if err != nil {
		return result{}, err
	}
	defer other.close()
	var took []time.Duration
	for i := range 60 {
		unlock, err := e.engine.lock(ctx, "handoff")
		if err != nil {
			return result{}, err
		}
		type grant struct {
			at     time.Time
			unlock func() error
			err    error
		}
		granted := make(chan grant, 1)
		go func() {
			unlock, err := other.lock(ctx, "handoff")
			granted <- grant{time.Now(), unlock, err}
		}()
		// Long enough for the waiter to be parked, and not in step with its polling.
		time.Sleep(30*time.Millisecond + time.Duration(i%7)*time.Millisecond)
		begun := time.Now()
		if err := unlock(); err != nil {
			return result{}, err
		}
		g := <-granted
		if g.err != nil {
			return result{}, g.err
		}
		took = append(took, g.at.Sub(begun))
		if err := g.unlock(); err != nil {
			return result{}, err
		}
	}
	slices.Sort(took)
	return result{float64(took[len(took)/2].Microseconds()), fmt.Sprintf("max %v", took[len(took)-1].Round(10*time.Microsecond))}, nil
}

// drain lets 50 goroutines wait for one lock and measures from its release until
// the last of them has had it.
func drain(ctx context.Context, e env) (result, error) {
	other, err := e.peer.open(e.url)
	if err != nil {
		return result{}, err
	}
	defer other.close()
	unlock, err := other.lock(ctx, "drain")
	if err != nil {
		return result{}, err
	}
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	for range 50 {
		all.Go(func() {
			unlock, err := e.engine.lock(ctx, "drain")
			if err == nil {
				err = unlock()
			}
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	begun := time.Now()
	if err := unlock(); err != nil {
		return result{}, err
	}
	all.Wait()
	took := time.Since(begun)
	if err := failed.Load(); err != nil {
		return result{}, *err
	}
	return result{figure: float64(took.Microseconds()) / 1000}, nil
}

const contenders, contention = 8, 3 * time.Second

// processes lets 8 processes take one lock as often as they can.
func processes(ctx context.Context, e env) (result, error) {
	program, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	cmds := make([]*exec.Cmd, contenders)
	outs := make([]strings.Builder, contenders)
	gates := make([]interface{ Close() error }, contenders)
	for i := range cmds {
		cmds[i] = exec.CommandContext(ctx, program, "-redis", e.url, "-contender", e.peer.name)
		cmds[i].Stdout, cmds[i].Stderr = &outs[i], os.Stderr
		stdin, err := cmds[i].StdinPipe()
		if err != nil {
			return result{}, err
		}
		gates[i] = stdin
		if err := cmds[i].Start(); err != nil {
			return result{}, err
		}
	}
	time.Sleep(500 * time.Millisecond)
	for _, g := range gates {
		_ = g.Close()
	}
	counts := make([]int, contenders)
	sum := 0
	for i, c := range cmds {
		if err := c.Wait(); err != nil {
			return result{}, err
		}
		if _, err := fmt.Sscan(outs[i].String(), &counts[i]); err != nil {
			return result{}, err
		}
		sum += counts[i]
	}
	return result{
		figure: float64(contention.Microseconds()) / float64(sum),
		note:   fmt.Sprintf("%d locks, %d to %d per process", sum, slices.Min(counts), slices.Max(counts)),
	}, nil
}

// contend is one of those processes. It begins when its input ends.
func contend(ctx context.Context, url, name string) error {
	i := slices.IndexFunc(peers, func(p peer) bool { return p.name == name })
	if i < 0 {
		return fmt.Errorf("-contender %q is no peer", name)
	}
	e, err := peers[i].open(url)
	if err != nil {
		return err
	}
	defer e.close()
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	n := 0
	for end := time.Now().Add(contention); time.Now().Before(end); n++ {
		unlock, err := e.lock(ctx, "contended")
		if err != nil {
			return err
		}
		if err := unlock(); err != nil {
			return err
		}
	}
	fmt.Println(n)
	return nil
}

// hold takes 10,000 leases and keeps them for two rounds of renewals.
func hold(ctx context.Context, e env) (result, error) {
	before := runtime.NumGoroutine()
	unlocks := make([]func() error, 10_000)
	for i := range unlocks {
		var err error
		if unlocks[i], err = e.engine.lock(ctx, fmt.Sprintf("held:%d", i)); err != nil {
			return result{}, err
		}
	}
	most := 0
	for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		most = max(most, runtime.NumGoroutine()-before)
	}
	lost := 0
	for _, unlock := range unlocks {
		if unlock() != nil {
			lost++
		}
	}
	return result{float64(most), fmt.Sprintf("%d lost", lost)}, nil
}
