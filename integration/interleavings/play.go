package interleavings

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Player plays scenarios, one at a time, in a database of its own: serializable
// transactions of two runs in one database could get into each other's way.
type Player struct {
	url     string
	control *pgx.Conn
	idle    map[string]*connection // by session
	keys    int
}

// runBound is for one run. A step that is blocked for good ends with it.
const runBound = 30 * time.Second

// keysMost is how many runs a player has rows for. They are there before the table is
// protected, since a row that demands its fence can be written under it only.
const keysMost = 4000

const tables = `
create table fence_row (resource text primary key, token bigint not null);
create table stock (k text primary key, n int not null, fence_token bigint not null default 0);
insert into stock select 'r' || i, 100 from generate_series(1, %[1]d) i;
create table guarded (k text primary key, n int not null);
insert into guarded select 'r' || i, 100 from generate_series(1, %[1]d) i;`

// NewPlayer prepares the database at url, in which the fence schema is. protect gets the
// statements that protect the table "guarded", whose column k names the fence of a row.
func NewPlayer(ctx context.Context, url, protect string) (*Player, error) {
	control, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	p := &Player{url: url, control: control, idle: map[string]*connection{}}
	for _, sql := range []string{fmt.Sprintf(tables, keysMost), protect} {
		if _, err := control.Exec(ctx, sql); err != nil {
			p.Close()
			return nil, fmt.Errorf("interleavings: prepare: %w", err)
		}
	}
	return p, nil
}

// Close ends the player's connections.
func (p *Player) Close() {
	for _, c := range p.idle {
		_ = c.conn.Close(context.Background())
	}
	_ = p.control.Close(context.Background())
}

// An Outcome is what came of one run.
type Outcome struct {
	Events  string
	Final   string // the data
	Anomaly string // "" where there was none
}

func (o Outcome) String() string {
	verdict := o.Anomaly
	if verdict == "" {
		verdict = "clean"
	}
	return o.Events + " => " + o.Final + ", " + verdict
}

// A run is one play of one scenario.
type run struct {
	*Player
	client
	sc       *Scenario
	sessions []*session
	events   []string
	speaker  string // whose events were written last
	trace    trace
}

// Play plays steps, which may be those of the scenario or others of the same sessions.
func (p *Player) Play(ctx context.Context, sc *Scenario, mode Mode, level string, steps []Step) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, runBound)
	defer cancel()
	p.keys++
	key := fmt.Sprint("r", p.keys)
	r := &run{Player: p, sc: sc, client: client{mode: mode, level: level, key: key, resource: key}}
	defer r.end(cancel)
	for _, step := range steps {
		s, err := r.session(ctx, step.Session)
		if err != nil {
			return Outcome{}, err
		}
		if err := r.play(ctx, s, step); err != nil {
			return Outcome{}, fmt.Errorf("interleavings: %s of %s in mode %s at %s: %w", step, s.name, mode.Name, level, err)
		}
	}
	return r.outcome(ctx)
}

func (r *run) session(ctx context.Context, name string) (*session, error) {
	for _, s := range r.sessions {
		if s.name == name {
			return s, nil
		}
	}
	holder := strings.ToUpper(name) // A and a are two connections of one holder
	s := &session{name: name, holder: holder, token: r.sc.Tokens[holder], connection: r.idle[name]}
	delete(r.idle, name)
	if s.connection == nil {
		var err error
		if s.connection, err = connect(ctx, r.url); err != nil {
			return nil, err
		}
	}
	r.sessions = append(r.sessions, s)
	return s, nil
}

// play runs a step of s, or has it wait for the one that is blocked. Then it sees to
// what others were waiting for.
func (r *run) play(ctx context.Context, s *session, step Step) error {
	switch {
	case step.Verb == "die":
		return r.die(ctx, s)
	case step.Verb == "gone":
		return r.gone(ctx, s)
	case step.Verb == "await":
		return r.await(ctx, s)
	case step.Verb == "again":
		s.out = false
		return nil
	case s.running != nil || s.answer != nil:
		s.queue = append(s.queue, step)
		return nil
	case s.out || s.dead:
		return nil
	}
	done := make(chan response, 1)
	go func() {
		what, err := r.do(ctx, s, step)
		done <- response{what, err}
	}()
	s.step, s.running = step, done
	if err := r.wait(ctx, s); err != nil {
		return err
	}
	if s.running != nil {
		r.say(s, step.String()+" BLOCKED")
		return nil
	}
	r.finish(ctx, s)
	return r.settle(ctx)
}

// wait waits until the running step has ended or is seen to wait for another session of
// the run.
func (r *run) wait(ctx context.Context, s *session) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case answer := <-s.running:
			s.running, s.answer = nil, &answer
			return nil
		case <-ctx.Done():
			return fmt.Errorf("neither ended nor blocked: %w", ctx.Err())
		case <-time.After(pause):
		}
		others := []int32{}
		for _, o := range r.sessions {
			if o != s {
				others = append(others, int32(o.conn.PgConn().PID())) //nolint:gosec // process ids are small
			}
		}
		var blocked bool
		err := r.control.QueryRow(ctx, "select coalesce(pg_blocking_pids($1) && $2, false)", s.conn.PgConn().PID(), others).Scan(&blocked)
		if err != nil || blocked {
			return err
		}
	}
}

// settle goes on with the sessions whose step is no longer blocked, until none is left.
func (r *run) settle(ctx context.Context) error {
	for {
		if err := r.ended(ctx); err != nil {
			return err
		}
		i := slices.IndexFunc(r.sessions, func(s *session) bool { return s.answer != nil })
		if i < 0 {
			return nil
		}
		s := r.sessions[i]
		r.finish(ctx, s)
		queue := s.queue
		s.queue = nil
		for _, step := range queue {
			if err := r.play(ctx, s, step); err != nil {
				return err
			}
		}
	}
}

// ended looks which steps have ended. It looks again when one has: what that one waited
// for has ended before it, and is to be told first.
func (r *run) ended(ctx context.Context) error {
	for again := true; again; {
		again = false
		for _, s := range r.sessions {
			if s.running == nil || s.dead {
				continue
			}
			if err := r.wait(ctx, s); err != nil {
				return err
			}
			again = again || s.running == nil
		}
	}
	return nil
}

// await waits for a blocked step though nobody does anything else: the server ends it.
func (r *run) await(ctx context.Context, s *session) error {
	for s.running != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not end: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// die ends the client as kill -9 does. Its server process learns that when it next
// reads or writes.
func (r *run) die(ctx context.Context, s *session) error {
	s.dead = true
	s.silent.Store(true)
	if err := s.conn.PgConn().Conn().Close(); err != nil {
		return err
	}
	r.say(s, "dies")
	if s.running == nil {
		return r.gone(ctx, s)
	}
	<-s.running // the client's side of it
	s.running = nil
	if s.step.Verb == "addend" { // the server goes on to its COMMIT
		s.pending = append(s.pending, number(s.step))
	}
	return nil
}

// gone waits until the server knows that the client is dead. What the client had not
// been told counts as written if it is there to be seen.
func (r *run) gone(ctx context.Context, s *session) error {
	if !s.dead {
		return nil
	}
	pid := s.conn.PgConn().PID()
	for there := true; there; time.Sleep(time.Millisecond) {
		if err := r.control.QueryRow(ctx, "select exists (select from pg_stat_activity where pid = $1)", pid).Scan(&there); err != nil {
			return err
		}
	}
	n, err := r.row(ctx)
	if err != nil {
		return err
	}
	fate := &r.trace.unknown
	if len(s.pending) > 0 && n != nil && *n == s.read+s.pending[len(s.pending)-1] {
		fate = &r.trace.committed
	}
	*fate, s.pending = append(*fate, s.pending...), nil
	return r.settle(ctx)
}

// end leaves the connections for the next run that it can have.
func (r *run) end(cancel func()) {
	for _, s := range r.sessions {
		if s.running == nil && !s.dead && s.conn.PgConn().TxStatus() == 'I' {
			r.idle[s.name] = s.connection
		}
	}
	cancel() // ends the steps that are blocked
	for _, s := range r.sessions {
		if r.idle[s.name] == s.connection {
			continue
		}
		if s.running != nil && !s.dead {
			<-s.running
		}
		_ = s.conn.Close(context.Background())
	}
}
