package oracle_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/oracle"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
)

// A script is a history of calls, one after the other unless they are said to begin
// earlier.
type script struct {
	now     int64
	number  int
	reports []workload.Report
	there   []history.Row
}

func (s *script) begin(c workload.Call, worker, op string, token guard.Token) (end func(o history.Outcome, value string)) {
	s.now++
	s.number++
	r := workload.Report{At: s.now, Worker: worker, Op: op, Resource: "r", Call: c, Number: s.number, Token: token, Nonce: worker}
	s.reports = append(s.reports, r)
	return func(o history.Outcome, value string) {
		s.now++
		r.At, r.Ended, r.Outcome, r.Value = s.now, true, o, value
		s.reports = append(s.reports, r)
	}
}

func (s *script) raise(worker string, token guard.Token, o history.Outcome) {
	s.begin(workload.CallRaise, worker, "", token)(o, "")
}

func (s *script) read(worker, op, value string) {
	s.begin(workload.CallRead, worker, op, 0)(history.Committed, value)
}

func (s *script) commit(worker, op string, token guard.Token, o history.Outcome) {
	s.begin(workload.CallCommit, worker, op, token)(o, "")
}

func (s *script) result(t *testing.T) oracle.Linearization {
	t.Helper()
	all := oracle.Register(oracle.State{Rows: s.there}, oracle.Told{Reports: s.reports}, 10*time.Second)
	require.Len(t, all, 1)
	return all[0]
}

func TestRegister(t *testing.T) {
	t.Parallel()
	const ok, refused, unknown, failed = history.Committed, history.Refused, history.Unknown, history.Failed
	for name, c := range map[string]struct {
		play func(s *script)
		want porcupine.CheckResult
	}{
		"one after the other": {func(s *script) {
			s.raise("a", 1, ok)
			s.read("a", "a1", "")
			s.commit("a", "a1", 1, ok)
			s.raise("b", 2, ok)
			s.read("b", "b1", "a1")
			s.commit("b", "b1", 2, ok)
			s.commit("a", "a2", 1, refused)
		}, porcupine.Ok},
		"S2 the late writer is let in": {func(s *script) {
			s.raise("a", 1, ok)
			s.read("a", "a1", "")
			s.raise("b", 2, ok)
			s.read("b", "b1", "")
			s.commit("a", "a1", 1, ok)
		}, porcupine.Illegal},
		"both wrote what rests on one read": {func(s *script) {
			s.raise("a", 1, ok)
			s.read("a", "a1", "")
			s.commit("a", "a1", 1, ok)
			s.commit("a", "a1", 1, ok)
		}, porcupine.Illegal},
		"a stale read": {func(s *script) {
			s.raise("a", 1, ok)
			s.read("a", "a1", "")
			s.commit("a", "a1", 1, ok)
			s.read("b", "b1", "")
		}, porcupine.Illegal},
		"refused, though nobody came later": {func(s *script) {
			s.raise("a", 1, ok)
			s.read("a", "a1", "")
			s.commit("a", "a1", 1, refused)
		}, porcupine.Illegal},
		"S9 an equal token of another is let in": {func(s *script) {
			s.raise("a", 1, ok)
			s.raise("b", 1, ok)
		}, porcupine.Illegal},
		"S22 the same raise again": {func(s *script) {
			s.raise("a", 1, unknown)
			s.raise("a", 1, ok)
			s.raise("b", 1, refused)
		}, porcupine.Ok},
		"a raise without an answer took effect late": {func(s *script) {
			s.raise("a", 2, unknown)
			s.raise("b", 1, ok)
			s.read("b", "b1", "")
			s.commit("b", "b1", 1, ok)
			s.raise("c", 2, refused)
		}, porcupine.Ok},
		"a raise that nobody answered never did": {func(s *script) {
			s.begin(workload.CallRaise, "a", "", 2)
			s.raise("b", 1, ok)
			s.raise("b", 1, ok)
		}, porcupine.Ok},
		"S23 a commit without an answer is there": {func(s *script) {
			s.raise("a", 1, ok)
			s.read("a", "a1", "")
			s.commit("a", "a1", 1, unknown)
			s.there = append(s.there, history.Row{Resource: "r", Op: "a1"})
			s.read("b", "b1", "a1")
		}, porcupine.Ok},
		"S23 a commit without an answer is not there": {func(s *script) {
			s.raise("a", 1, ok)
			s.read("a", "a1", "")
			s.commit("a", "a1", 1, unknown)
			s.read("b", "b1", "a1")
		}, porcupine.Illegal},
		"what failed changes nothing": {func(s *script) {
			s.raise("a", 1, ok)
			s.commit("a", "a1", 1, failed)
			s.read("b", "b1", "")
		}, porcupine.Ok},
		"two at once, in either order": {func(s *script) {
			first := s.begin(workload.CallRaise, "a", "", 1)
			second := s.begin(workload.CallRaise, "b", "", 2)
			second(ok, "")
			first(ok, "")
			s.commit("a", "a1", 1, refused)
		}, porcupine.Ok},
		"without fences": {func(s *script) {
			s.read("a", "a1", "")
			s.commit("a", "a1", 7, ok)
			s.read("b", "b1", "a1")
			s.commit("b", "b1", 3, ok)
			s.commit("b", "b2", 3, refused)
		}, porcupine.Ok},
		"without fences, a lost update": {func(s *script) {
			s.read("a", "a1", "")
			s.read("b", "b1", "")
			s.commit("a", "a1", 1, ok)
			s.commit("b", "b1", 2, ok)
		}, porcupine.Illegal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := new(script)
			c.play(s)
			l := s.result(t)
			require.Equal(t, c.want, l.Result)
			path := filepath.Join(t.TempDir(), "page.html")
			require.NoError(t, l.Draw(path))
			page, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Contains(t, string(page), "<html")
		})
	}
}
