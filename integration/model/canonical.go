package model

// canonical returns the one state that stands for all with the same future: those that
// differ only in which client is which, in how often something has happened, or in a nonce
// that nobody has any more. It is what keeps the exploration within seconds.
func (m Model) canonical(s State) State {
	if !m.Stamps {
		s.row.token = 0
	}
	s.shift()
	s.rank()
	if m.Rereads {
		return s // there a client may have the nonce of another
	}
	for _, f := range []*fence{&s.lock, &s.fence} {
		if f.token != 0 && !s.inUse(f.nonce) {
			f.nonce = 0
		}
	}
	s.sort(m.Clients)
	return s
}

// inUse reports whether anybody may still send something with the nonce.
func (s *State) inUse(nonce uint8) bool {
	for c := range s.clients {
		if s.clients[c].phase != idle && s.nonce(c) == nonce {
			return true
		}
	}
	return s.late.nonce == nonce || s.open.fence.nonce == nonce
}

// sort puts the clients in an order that does not depend on their names.
func (s *State) sort(clients int) {
	for i := 1; i < clients; i++ {
		for c := i; c > 0 && s.key(c-1) > s.key(c); c-- {
			s.swap(c)
		}
	}
}

// key is equal for two clients only if nothing tells them apart but their names.
func (s *State) key(c int) uint64 {
	me := s.clients[c]
	key := uint64(0)
	for _, part := range []uint8{uint8(me.phase), me.begun, me.after, me.work.fence.token, me.work.ordinal, me.work.read} {
		key = key<<4 | uint64(part)
	}
	if me.work.hasRead {
		key |= 1 << 24
	}
	for _, nonce := range []uint8{s.lock.nonce, s.fence.nonce, s.late.nonce, s.open.fence.nonce} {
		key <<= 4
		if nonce != 0 && int(nonce-1)/maxAcquisitions == c {
			key |= uint64(nonce-1)%maxAcquisitions + 1
		}
	}
	return key
}

// swap exchanges client c and the one before it.
func (s *State) swap(c int) {
	s.clients[c-1], s.clients[c] = s.clients[c], s.clients[c-1]
	for _, nonce := range []*uint8{&s.lock.nonce, &s.fence.nonce, &s.late.nonce, &s.open.fence.nonce, &s.clients[c-1].work.fence.nonce, &s.clients[c].work.fence.nonce} {
		switch {
		case *nonce == 0:
		case int(*nonce-1)/maxAcquisitions == c:
			*nonce -= maxAcquisitions
		case int(*nonce-1)/maxAcquisitions == c-1:
			*nonce += maxAcquisitions
		}
	}
}

// shift moves all values so that the oldest which is known is 0.
func (s *State) shift() {
	by := min(s.row.value, s.commits)
	s.works(func(w *work) {
		if w.hasRead {
			by = min(by, w.read)
		}
	})
	s.row.value -= by
	s.commits -= by
	s.works(func(w *work) {
		if w.hasRead {
			w.read -= by
		}
	})
}

// rank numbers the ordinals anew, in their order.
func (s *State) rank() {
	all := []*uint8{&s.ordinal, &s.latest}
	s.works(func(w *work) { all = append(all, &w.ordinal) })
	var known [16]bool
	for _, o := range all {
		known[*o] = true
	}
	var ranks [16]uint8
	s.raises = 0
	for o := 1; o < len(known); o++ {
		if known[o] {
			s.raises++
			ranks[o] = s.raises
		}
	}
	for _, o := range all {
		*o = ranks[*o]
	}
}

func (s *State) works(visit func(*work)) {
	for c := range s.clients {
		visit(&s.clients[c].work)
	}
	visit(&s.open)
}
