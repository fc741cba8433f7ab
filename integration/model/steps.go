package model

import "github.com/go-fencing/fencing/guard"

// A Model is a protocol within bounds.
type Model struct {
	Rules
	Bounds
}

// steps yields what may happen next.
func (m Model) steps(s State, yield func(Step, State)) {
	m.redis(s, yield)
	m.stray(s, yield)
	for c := range m.Clients {
		m.client(s, c, yield)
	}
}

// redis is what Redis may do by itself.
func (m Model) redis(s State, yield func(Step, State)) {
	if s.lock != (fence{}) {
		to := s
		to.lock = fence{}
		yield(Step{"Redis", "ends the lease"}, to)
	}
	for earlier := range s.counter {
		to := s
		to.counter = earlier
		yield(Step{"Redis", "forgets tokens that it has handed out"}, to)
	}
}

// stray is what arrives after its client has given it up.
func (m Model) stray(s State, yield func(Step, State)) {
	if s.late != (fence{}) && !m.gateBusy(&s) {
		to := s
		m.raise(&to, s.late)
		to.late = fence{}
		yield(Step{"Postgres", "gets a raise late"}, to)
	}
	switch s.open.at {
	case sent:
		to := s
		to.open = work{}
		if m.enters(&s, s.open.fence) {
			to.open = s.open
			to.open.at = entered
		}
		yield(Step{"Postgres", "gets a transaction late"}, to)
	case entered:
		to := s
		m.commit(&to, s.open)
		to.open = work{}
		yield(Step{"Postgres", "commits a transaction late"}, to)
		yield(Step{"Postgres", "ends an idle transaction"}, s.withoutOpen())
	}
}

func (s State) withoutOpen() State {
	s.open = work{}
	return s
}

// client is what client c may do, and what may befall it.
func (m Model) client(s State, c int, yield func(Step, State)) {
	m.progress(s, c, yield)
	me, name := s.clients[c], clientNames[c]
	if me.phase == idle {
		return
	}
	restarted := s
	restarted.clients[c] = client{begun: me.begun}
	yield(Step{name, "restarts, or gives up"}, restarted)

	switch {
	case me.phase == asking:
	case me.phase == granted && m.Raise != nil:
		if !m.gateBusy(&s) {
			to := s
			m.raise(&to, me.work.fence)
			yield(Step{name, "raises, and the reply is lost"}, to)
		}
		if s.late == (fence{}) {
			to := s
			to.late = me.work.fence
			yield(Step{name, "sends a raise that is delayed, and will send another"}, to)
		}
	case me.phase == ready && s.open.at == nothing:
		yield(Step{name, "sends its transaction, which is delayed, and gives up"}, m.abandon(s, c, sent))
	case me.phase == inside:
		to := s
		m.commit(&to, me.work)
		yield(Step{name, "commits, and the reply is lost"}, m.unknown(to, c))
		if s.open.at == nothing {
			yield(Step{name, "sends its commit, which is delayed, and gives up"}, m.abandon(s, c, entered))
		}
	}
}

// abandon leaves the transaction of client c to itself.
func (m Model) abandon(s State, c int, at progress) State {
	s.open = s.clients[c].work
	s.open.at = at
	return m.unknown(s, c)
}

// unknown is client c after a transaction whose outcome it did not learn. It acquires
// anew: the next raise waits for what has entered, and stops what has not.
func (m Model) unknown(s State, c int) State {
	me := &s.clients[c]
	if m.Reuses {
		me.phase, me.work.hasRead, me.work.read = raised, false, 0
		return s
	}
	*me = client{begun: me.begun}
	return s
}

// progress is the path of client c if nothing goes wrong. Only acquiring may also lose
// its reply here, since that is where it begins.
func (m Model) progress(s State, c int, yield func(Step, State)) {
	me, name := s.clients[c], clientNames[c]
	switch me.phase {
	case idle:
		if int(me.begun) == m.Acquisitions {
			return
		}
		s.clients[c].begun++
		m.acquire(s, c, "acquires", yield)
	case asking:
		m.acquire(s, c, "acquires again with the same nonce", yield)
	case refused:
		m.acquire(s, c, "asks for a token above the store's", yield)
	case granted:
		m.secure(s, c, yield)
	case raised:
		to := s
		to.clients[c].phase = ready
		to.clients[c].work.hasRead, to.clients[c].work.read = true, s.row.value
		if m.ReadsEarly {
			to.clients[c].phase = granted
		}
		yield(Step{name, "reads"}, to)
	case ready:
		yield(Step{name, "begins its transaction and enters"}, m.enter(s, c))
	case inside:
		to := s
		m.commit(&to, me.work)
		to.clients[c].phase = done
		yield(Step{name, "writes and commits"}, to)
	case done:
		to := s
		if s.lock.nonce == me.work.fence.nonce {
			to.lock = fence{}
		}
		if m.ReleaseDrops && s.fence == me.work.fence {
			to.fence, to.ordinal = fence{}, 0
		}
		to.clients[c] = client{begun: me.begun}
		yield(Step{name, "releases"}, to)
	}
}

// acquire is the script of lock/redislock: the same nonce gets the same token, unless
// that is not above after.
func (m Model) acquire(s State, c int, what string, yield func(Step, State)) {
	nonce, after := s.nonce(c), s.clients[c].after
	switch {
	case s.lock == fence{}, s.lock.nonce == nonce && s.lock.token <= after:
		token, err := m.Next(guard.Token(s.counter), guard.Token(after))
		if err != nil || token > m.Tokens && c != newcomer {
			return
		}
		s.counter = uint8(token) //nolint:gosec // small by Tokens, which a byte holds
		s.lock = fence{s.counter, nonce}
	case s.lock.nonce != nonce:
		return // held
	}
	answered := s
	answered.clients[c].phase = m.afterGrant(s.clients[c])
	answered.clients[c].work.fence, answered.clients[c].after = s.lock, 0
	yield(Step{clientNames[c], what}, answered)
	if s.clients[c].phase != refused {
		s.clients[c].phase = asking
	}
	yield(Step{clientNames[c], what + ", and the reply is lost"}, s)
}

func (m Model) afterGrant(me client) phase {
	if m.ReadsEarly && me.phase != refused {
		return raised // before it is
	}
	return granted
}

// secure is the raise with an answer.
func (m Model) secure(s State, c int, yield func(Step, State)) {
	if m.Raise == nil {
		s.clients[c].phase = raised
		yield(Step{clientNames[c], "does not raise"}, s)
		return
	}
	if m.gateBusy(&s) {
		return
	}
	me := &s.clients[c]
	if !m.raise(&s, me.work.fence) {
		me.phase, me.after = refused, s.fence.token
		yield(Step{clientNames[c], "raises and is refused"}, s)
		return
	}
	me.phase, me.work.ordinal = raised, s.ordinal
	if m.ReadsEarly {
		me.phase = ready
	}
	yield(Step{clientNames[c], "raises"}, s)
}

// enter opens the transaction of client c, or refuses it.
func (m Model) enter(s State, c int) State {
	me := &s.clients[c]
	if m.Rereads && s.lock != (fence{}) {
		me.work.fence = s.lock
	}
	if m.enters(&s, me.work.fence) {
		me.phase = inside
	} else {
		*me = client{begun: me.begun}
	}
	return s
}
