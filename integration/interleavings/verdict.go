package interleavings

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A trace is what the clients of a run know of it.
type trace struct {
	committed []int // what was added and acknowledged
	unknown   []int // what was added by a client that died before the answer
	stale     bool  // a read gave something else than what was committed
	waited    bool
	deadlock  bool
}

// The verdicts, by their names in a scenario: each returns the anomaly, or "".
//
//   - sum: what was added and acknowledged, and nothing else, is there; unknown ones
//     either way.
//   - gone: the row that was deleted has not come back.
//   - reads: every read gave what was committed at that moment.
//   - untouched: the row is as it was.
//   - free: nobody had to wait.
//   - no deadlock.
var verdicts = map[string]func(t trace, n *int) string{
	"sum": func(t trace, n *int) string {
		switch {
		case n == nil:
			return "LOST ROW"
		case !reachable(100, t.committed, t.unknown, *n):
			return "LOST UPDATE"
		}
		return ""
	},
	"gone":        func(_ trace, n *int) string { return unless(n == nil, "RESURRECTED") },
	"reads":       func(t trace, _ *int) string { return unless(!t.stale, "STALE READ") },
	"untouched":   func(_ trace, n *int) string { return unless(n != nil && *n == 100, "UNGUARDED WRITE") },
	"free":        func(t trace, _ *int) string { return unless(!t.waited, "WAITS") },
	"no deadlock": func(t trace, _ *int) string { return unless(!t.deadlock, "DEADLOCK") },
}

func unless(ok bool, anomaly string) string {
	if ok {
		return ""
	}
	return anomaly
}

// reachable reports whether n is start, all of certain and some of possible.
func reachable(start int, certain, possible []int, n int) bool {
	for _, add := range certain {
		start += add
	}
	if len(possible) == 0 {
		return start == n
	}
	return reachable(start, nil, possible[1:], n) || reachable(start+possible[0], nil, possible[1:], n)
}

// finish writes down what a step came to and what that means for its session.
func (r *run) finish(ctx context.Context, s *session) {
	answer := *s.answer
	s.answer = nil
	if answer.err != nil {
		word := brief(answer.err)
		r.trace.deadlock = r.trace.deadlock || strings.Contains(word, "40P01")
		r.say(s, s.step.String()+" "+word)
		s.out, s.pending = true, nil
		if s.conn.IsClosed() {
			s.dead = true
		} else if s.conn.PgConn().TxStatus() != 'I' {
			_ = s.exec(ctx, "rollback")
		}
		return
	}
	switch s.step.Verb {
	case "read":
		r.compare(ctx, s)
	case "add", "addend":
		s.pending = append(s.pending, number(s.step))
	case "rollback", "undo":
		s.pending = nil
	}
	if s.conn.PgConn().TxStatus() == 'I' {
		r.trace.committed = append(r.trace.committed, s.pending...)
		s.pending = nil
	}
	if answer.what != "" && answer.what[0] != '=' {
		answer.what = " " + answer.what
	}
	r.say(s, s.step.String()+answer.what)
}

// compare looks whether a session's last read is what is committed.
func (r *run) compare(ctx context.Context, s *session) {
	n, err := r.row(ctx)
	r.trace.stale = r.trace.stale || err != nil || n == nil || *n != s.read
}

func (r *run) row(ctx context.Context) (*int, error) {
	var n int
	err := r.control.QueryRow(ctx, "select n from "+r.mode.table+" where k = $1", r.key).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &n, err
}

// say appends an event, together with those of the same session before it.
func (r *run) say(s *session, event string) {
	r.trace.waited = r.trace.waited || strings.HasSuffix(event, "BLOCKED")
	if r.speaker == s.name {
		r.events[len(r.events)-1] += ", " + event
		return
	}
	r.speaker = s.name
	r.events = append(r.events, s.name+" "+event)
}

// outcome ends the run: a session that is still blocked stays so, what is not committed
// by now does not count.
func (r *run) outcome(ctx context.Context) (Outcome, error) {
	for _, s := range r.sessions {
		if s.running != nil && !s.dead {
			r.say(s, "still blocked")
			r.trace.unknown = append(r.trace.unknown, s.pending...)
		}
	}
	n, err := r.row(ctx)
	if err != nil {
		return Outcome{}, err
	}
	verdict, ok := verdicts[r.sc.Verdict]
	if !ok {
		return Outcome{}, fmt.Errorf("interleavings: no verdict %q", r.sc.Verdict)
	}
	final := "no row"
	if n != nil {
		final = strconv.Itoa(*n)
	}
	return Outcome{Events: strings.Join(r.events, " | "), Final: final, Anomaly: verdict(r.trace, n)}, nil
}
