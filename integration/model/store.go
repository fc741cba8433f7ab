package model

import "github.com/go-fencing/fencing/guard"

// gateBusy reports whether a raise has to wait, since a transaction has entered.
func (m Model) gateBusy(s *State) bool {
	if m.Unlocked {
		return false
	}
	for _, c := range s.clients {
		if c.phase == inside {
			return true
		}
	}
	return s.open.at == entered
}

// raise makes f the fence of the store, if the rules admit it.
func (m Model) raise(s *State, f fence) bool {
	if !m.Raise(s.fence.record(), f.real()) {
		return false
	}
	s.set(f)
	return true
}

// set keeps the ordinal of a fence that is raised again.
func (s *State) set(f fence) {
	if s.fence != f {
		s.raises++
		s.fence, s.ordinal = f, s.raises
	}
}

func (m Model) enters(s *State, f fence) bool {
	return m.Enter(s.fence.record(), guard.Token(s.row.token), f.real())
}

// commit writes what the client has read, plus one. Rules without a raise are checked
// here, in one step with the write.
func (m Model) commit(s *State, w work) {
	if m.Raise == nil && !m.enters(s, w.fence) {
		return
	}
	if m.RaisesAtWrite {
		s.set(w.fence)
		w.ordinal = s.ordinal
	}
	s.row = row{w.read + 1, w.fence.token}
	s.commits++
	s.disorder = s.disorder || w.ordinal < s.latest
	s.latest = max(s.latest, w.ordinal)
}
