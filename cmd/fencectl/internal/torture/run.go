package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/freeze"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/oracle"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/internal/history"
)

// recoveryBound is for every worker to have worked once on every resource after the
// last fault. The longest that it may take by design: a raise that waits for a
// transaction that sits idle, and a lock that the clock of Redis has made longer.
const recoveryBound = 30 * time.Second

// ErrUnsupported: this system cannot do what the torture needs.
var ErrUnsupported = errors.New("the torture freezes processes, which this system cannot")

// An Incident is a fault as it has happened, for the counts and the picture.
type Incident struct {
	What     What
	Variant  workload.Variant // "" if it happened to all
	Who      string           // worker, or the fault that all share
	From, To time.Duration    // since the start
	Text     string
}

// What kind of incident.
type What string

// The incidents.
const (
	Frozen What = "frozen"
	Killed What = "killed"
	Cutoff What = "cut off"
	Lost   What = "reply lost"
	Struck What = "struck"
)

// A run is a torture from start to end.
type run struct {
	options  Options
	stage    *stage
	players  []*player
	journals map[workload.Variant]*journal
	started  int64 // by workload.Now

	mu        sync.Mutex
	incidents []Incident
	blocked   map[string]bool                          // raises that were seen to wait for a transaction
	broken    map[workload.Variant][]history.Violation // what was found while it ran
	recovered time.Duration
}

// Run runs the torture and says what came of it. An error says that it did not come
// to an end.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	if !freeze.Possible {
		return nil, ErrUnsupported
	}
	r := &run{options: o, journals: make(map[workload.Variant]*journal), blocked: make(map[string]bool), broken: make(map[workload.Variant][]history.Violation)}
	variants := slices.Concat(workload.Guarded, workload.Controls)
	var all []string
	for _, v := range variants {
		all = append(all, resources(v)...)
	}
	if r.stage, err = openStage(ctx, o, all); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stage.close(ctx)) }()
	for i, v := range variants {
		r.journals[v] = newJournal()
		r.add(v, "ab", newSchedule(o.Seed, uint64(2*i), v.IsGuarded()), resources(v))
		if v.IsGuarded() { // with a third worker, against whom the other two contend
			r.add(v, "c", newSchedule(o.Seed, uint64(2*i+1), true), resources(v))
		}
	}
	defer func() { err = errors.Join(err, r.dismiss()) }()
	for _, p := range r.players {
		for i := range len(p.name) {
			if err := p.hireNext(i); err != nil {
				return nil, err
			}
		}
	}
	r.started = workload.Now()
	if err := r.torture(ctx); err != nil {
		return nil, err
	}
	return r.judge(ctx)
}

// resources are those of a variant.
func resources(v workload.Variant) []string {
	names := make([]string, resourcesEach)
	for i := range names {
		names[i] = fmt.Sprintf("%s:%d", slugs[v], i)
	}
	return names
}

// slugs are the variants in the names of keys, resources and clients.
var slugs = map[workload.Variant]string{
	workload.PgGuard: "pgguard", workload.SQLGuard: "sqlguard", workload.GormGuard: "gormguard",
	workload.NoGuard: "none", workload.RowRule: "row", workload.PlainCheck: "plain", workload.LaxRaise: "lax", workload.PopularLock: "popular",
}

func (r *run) add(v workload.Variant, name string, s *schedule, resources []string) {
	r.players = append(r.players, &player{run: r, variant: v, name: name, resources: resources, journal: r.journals[v], schedule: s})
}

// torture lets everybody play until the time is up, and everybody recover then.
func (r *run) torture(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var watchers, actors sync.WaitGroup
	watchers.Go(func() { r.watch(watching) })
	watchers.Go(func() { r.progress(watching) })
	act := func(what func() error) {
		actors.Go(func() {
			if err := what(); err != nil {
				cancel(err) // of the first one; the others are torn along
			}
		})
	}
	timeUp := make(chan struct{})
	watchers.Go(func() { defer close(timeUp); r.awaitEnd(ctx) })
	act(func() error { return r.interfere(ctx, timeUp) })
	for _, p := range r.players {
		act(func() error { return p.play(ctx, timeUp) })
	}
	actors.Wait()
	if ctx.Err() == nil {
		last := r.now()
		for _, p := range r.players {
			act(func() error {
				err := p.recover(ctx, recoveryBound)
				switch {
				case isViolation(err):
					r.violated(p.variant, oracle.Recovery, err)
				case err != nil:
					return err
				case p.variant.IsGuarded():
					r.mu.Lock()
					defer r.mu.Unlock()
					r.recovered = max(r.recovered, r.now()-last)
				}
				return nil
			})
		}
		actors.Wait()
	}
	stopWatching()
	watchers.Wait()
	return context.Cause(ctx)
}

// isViolation reports whether an error is for the verdict, and does not end the run.
func isViolation(err error) bool {
	return errors.Is(err, errNoRecovery) || errors.Is(err, errStuck) || errors.Is(err, errGone)
}

func (r *run) violated(v workload.Variant, k history.Kind, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken[v] = append(r.broken[v], history.Violation{Kind: k, Text: err.Error()})
}

// The time that a run may get on top of its length, for a busy machine to see every
// control broken.
const (
	leastExtra = 15 * time.Second
	mostExtra  = time.Minute
)

// awaitEnd returns when the time is up: after the run's length, or somewhat later if
// the run shows nothing yet, unless it was asked to do without some of the faults.
func (r *run) awaitEnd(ctx context.Context) {
	if !sleep(ctx, r.options.Length) || len(r.options.Faults) < len(Faults) {
		return
	}
	late := time.Now().Add(min(max(r.options.Length, leastExtra), mostExtra))
	for !r.shown(ctx) && time.Now().Before(late) && sleep(ctx, 300*time.Millisecond) {
	}
}

// shown reports whether every control has lost an update, every witness was seen, and
// every fault that all share has happened.
func (r *run) shown(ctx context.Context) bool {
	happened := r.faults()
	for _, f := range shared {
		if r.may(f) && happened[string(f)] == 0 {
			return false
		}
	}
	for _, n := range r.witnesses() {
		if n == 0 {
			return false
		}
	}
	rows, err := r.stage.pool.Query(ctx, "SELECT DISTINCT split_part(resource, ':', 1) FROM "+pgx.Identifier{r.stage.name, "history"}.Sanitize()+
		" GROUP BY resource, previous HAVING count(*) > 1")
	if err != nil {
		return false // Postgres is down, on purpose
	}
	lost, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return err == nil && !slices.ContainsFunc(workload.Controls, func(v workload.Variant) bool { return !slices.Contains(lost, slugs[v]) })
}

// may reports whether a fault is to happen, and can.
func (r *run) may(f Fault) bool {
	if f == "" {
		return true
	}
	switch f {
	case Flush, Snapshot, Promote, Clock:
		if !r.stage.redis.own() {
			return false // others may use it
		}
	case Crash:
		if r.stage.postgres == nil {
			return false
		}
	}
	return slices.Contains(r.options.Faults, f) && (f != Clock || r.stage.redis.clocks)
}

func (r *run) now() time.Duration { return time.Duration(workload.Now() - r.started) }

func (r *run) note(what What, v workload.Variant, who string, from time.Duration, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.incidents = append(r.incidents, Incident{what, v, who, from, r.now(), text})
}

func (r *run) config(v workload.Variant, name string) workload.Config {
	return workload.Config{
		Name: r.clients() + slugs[v] + "-" + name, Variant: v, Redis: r.stage.redis.url, Postgres: r.stage.url,
		Prefix: r.prefixOf(v), FenceSchema: r.stage.fenceSchema, DataSchema: r.stage.name,
		TTL: ttl, LockTimeout: lockTimeout, IdleTimeout: idleTimeout,
	}
}

func (r *run) prefixOf(v workload.Variant) string { return r.stage.name + "-" + slugs[v] }

func (p *player) prefix() string { return p.prefixOf(p.variant) }

// watch looks for raises that wait for a transaction of an earlier fence.
func (r *run) watch(ctx context.Context) {
	for sleep(ctx, 50*time.Millisecond) {
		rows, err := r.stage.pool.Query(ctx, `
			SELECT application_name || ' ' || pid || ' ' || query_start FROM pg_stat_activity
			 WHERE starts_with(application_name, $1) AND wait_event_type = 'Lock' AND wait_event = 'advisory' AND query LIKE '%raise%'`, r.clients())
		if err != nil {
			continue // Postgres is down, on purpose
		}
		for rows.Next() {
			var waiting string
			if rows.Scan(&waiting) == nil {
				r.mu.Lock()
				r.blocked[waiting] = true
				r.mu.Unlock()
			}
		}
		rows.Close()
	}
}

func (r *run) progress(ctx context.Context) {
	if r.options.Progress == nil {
		return
	}
	for sleep(ctx, time.Second) {
		s := Status{Elapsed: r.now(), Length: r.options.Length, Phase: "torturing"}
		if s.Elapsed > s.Length {
			s.Phase = "finishing"
		}
		for _, j := range r.journals {
			outcomes, _ := j.all()
			s.Operations += len(outcomes)
			s.Committed += j.count(history.Committed)
			s.Refused += j.count(history.Refused)
		}
		r.mu.Lock()
		s.Faults = len(r.incidents)
		r.mu.Unlock()
		r.options.Progress(s)
	}
}

// dismiss ends every worker.
func (r *run) dismiss() error {
	var all sync.WaitGroup
	errs := make([]error, len(r.players))
	for i, p := range r.players {
		p.each(func(_ int, m *member) {
			all.Go(func() {
				if err := m.dismiss(); err != nil {
					r.mu.Lock()
					defer r.mu.Unlock()
					errs[i] = errors.Join(errs[i], err)
				}
			})
		})
		p.crew = nil
	}
	all.Wait()
	return errors.Join(errs...)
}
