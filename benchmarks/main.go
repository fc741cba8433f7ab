// Command benchmarks compares the lock with others on one Redis, in one run, and
// prints a table. Only its ratios travel from one machine to another.
//
// In a virtual machine the waking of idle cores can take longer than a lock, and swings.
// To leave it out of the figures, keep each core awake with a process that gives way to
// any other: chrt --idle 0 sh -c 'while :; do :; done' &
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/internal/localserver"
)

func main() {
	runs := flag.Int("runs", 5, "how often each figure is taken; the table shows medians")
	only := flag.String("run", "", "regular expression that selects scenarios")
	url := flag.String("redis", "", "URL of a Redis to use in place of a private one; the program writes to it")
	contender := flag.String("contender", "", "internal: be one of several processes that want one lock")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *contender != "" {
		err = contend(ctx, *url, *contender)
	} else {
		err = compare(ctx, *url, *only, *runs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func compare(ctx context.Context, url, only string, runs int) error {
	selected, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run %q: %w", only, err)
	}
	if runs < 1 {
		return fmt.Errorf("-runs %d is not positive", runs)
	}
	if url == "" {
		server, err := localserver.StartRedis(ctx, localserver.RedisOptions{})
		if err != nil {
			return fmt.Errorf("a private Redis: %w; or name one with -redis", err)
		}
		defer func() { _ = server.Stop() }()
		url = server.URL()
	}
	for _, s := range scenarios {
		if !selected.MatchString(s.name) {
			continue
		}
		fmt.Printf("\n%s (%s)\n", s.name, s.unit)
		figures, failed := make(map[string][]result), make(map[string]error)
		for range runs * max(1, s.slices) {
			// In any order: how fast a machine wakes up depends on what it did before.
			for _, i := range rand.Perm(len(peers)) {
				p := peers[i]
				if failed[p.name] != nil || s.skip != nil && s.skip(p) {
					continue
				}
				r, err := measure(ctx, s, p, url)
				switch {
				case ctx.Err() != nil:
					return ctx.Err()
				case err != nil:
					failed[p.name] = err // which is a result, too
				default:
					figures[p.name] = append(figures[p.name], r)
				}
			}
		}
		print(s, figures, failed)
		if err := failed[peers[0].name]; err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func measure(ctx context.Context, s scenario, p peer, url string) (result, error) {
	e, err := p.open(url)
	if err != nil {
		return result{}, err
	}
	defer e.close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.run(ctx, env{engine: e, peer: p, url: url})
}

func print(s scenario, figures map[string][]result, failed map[string]error) {
	var ours result
	if rs := figures[peers[0].name]; len(rs) > 0 {
		ours = median(rs)
	}
	for _, p := range peers {
		rs := figures[p.name]
		if err := failed[p.name]; err != nil {
			fmt.Printf("  %-17s failed after %d runs: %v\n", p.name, len(rs), err)
			continue
		}
		if len(rs) == 0 {
			continue
		}
		m := median(rs)
		fmt.Printf("  %-17s %10.1f  %5.2f of ours  %s\n", p.name, m.figure, m.figure/ours.figure, m.note)
	}
}

// median returns the run in the middle.
func median(rs []result) result {
	rs = slices.SortedFunc(slices.Values(rs), func(a, b result) int { return int(1000 * (a.figure - b.figure)) })
	return rs[len(rs)/2]
}

func client(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o.PoolSize = 64
	return redis.NewClient(o), nil
}
