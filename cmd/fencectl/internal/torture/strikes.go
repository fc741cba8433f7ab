package torture

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// interfere strikes at what all variants share, until time is up.
func (r *run) interfere(ctx context.Context, timeUp <-chan struct{}) error {
	next := newStrikes(r.options.Seed)
	for {
		s := next()
		if !r.may(s.fault) {
			s.wait = 100 * time.Millisecond
		}
		select {
		case <-timeUp:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(s.wait):
		}
		if !r.may(s.fault) {
			continue
		}
		from := r.now()
		if err := r.strike(ctx, s); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("cause the fault %q: %w", s.fault, err)
		}
		r.note(Struck, "", string(s.fault), from, "")
	}
}

func (r *run) strike(ctx context.Context, s strike) error {
	_, rdb := r.stage.redis.now()
	switch s.fault {
	case Flush:
		return rdb.FlushAll(ctx).Err()
	case Snapshot:
		if err := rdb.Save(ctx).Err(); err != nil {
			return err
		}
		sleep(ctx, s.length)
		return r.stage.redis.crash(ctx)
	case Promote:
		return r.promote(ctx, s.length)
	case Crash:
		if err := r.stage.postgres.Kill(); err != nil {
			return err
		}
		return r.stage.postgres.Restart(ctx)
	case Clock:
		if err := r.stage.redis.setClock(s.step); err != nil {
			return err
		}
		sleep(ctx, s.length)
		return r.stage.redis.setClock(0)
	case Terminate:
		_, err := r.stage.pool.Exec(ctx, `
			SELECT pg_terminate_backend(pid) FROM (
			       SELECT DISTINCT ON (split_part(application_name, '.', 1)) pid FROM pg_stat_activity
			        WHERE datname = current_database() AND starts_with(application_name, $1) AND state IN ('active', 'idle in transaction')
			        ORDER BY split_part(application_name, '.', 1), backend_start) busy LIMIT 4`, r.clients())
		return err
	}
	return fmt.Errorf("unknown fault %q", s.fault)
}

// promote cuts the link to a replica and promotes that, while the old master works
// on. Every second worker is led to the new one, and for a while the old one hands
// out the same tokens to the others.
func (r *run) promote(ctx context.Context, length time.Duration) error {
	redis := &r.stage.redis
	if err := redis.follow(ctx); err != nil {
		return err
	}
	redis.wire.Cut()
	sleep(ctx, length)
	addr, err := redis.promote(ctx)
	if err != nil {
		return err
	}
	for half := range 2 {
		for _, p := range r.players {
			p.each(func(i int, m *member) {
				if i%2 == half {
					m.redis.Retarget(addr)
				}
			})
		}
		sleep(ctx, length)
	}
	return nil
}

// clients is how the names of all workers begin in Postgres.
func (r *run) clients() string { return strings.TrimPrefix(r.stage.name, "fencectl_") + ":" }
