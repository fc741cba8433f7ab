package demo

// Each act sells 50 and 30 of 100 items: 20 must be left.

// lockAlone: the check of the lease comes before the pause, the write after it.
func (p *play) lockAlone() {
	p.act(false, "the lock alone", "A pauses right after it has checked its lease, for longer than that lasts.")
	a, b := p.worker("A"), p.worker("B")
	p.acquire(a)
	seen := p.read(a)
	p.check(a)
	p.freeze(a)

	p.acquire(b)
	p.sell(b, 50, p.read(b))
	p.release(b)

	p.wake(a)
	p.sell(a, 30, seen)
	p.release(a)
	p.end()
}

// guarded is the same schedule.
func (p *play) guarded() {
	p.act(true, "the same with a fence", "Whoever has the lock raises its fence in "+p.name()+", which checks every write.")
	a, b := p.worker("A"), p.worker("B")
	p.acquire(a)
	seen := p.read(a)
	p.check(a)
	p.freeze(a)

	p.acquire(b)
	p.sell(b, 50, p.read(b))
	p.release(b)

	p.wake(a)
	p.sell(a, 30, seen)
	p.release(a)
	p.again(a)
	p.end()
}

// readWindow wakes A while B has read and not yet written. A token that is only
// compared when a row is written would let both in: the row has not met B's yet.
func (p *play) readWindow() {
	p.act(true, "the read window", "A wakes between B's read and B's write: no row has met B's token yet.")
	a, b := p.worker("A"), p.worker("B")
	p.acquire(a)
	seen := p.read(a)
	p.check(a)
	p.freeze(a)

	p.acquire(b)
	seenByB := p.read(b)

	p.wake(a)
	p.sell(a, 30, seen)
	p.sell(b, 50, seenByB)
	p.release(b)
	p.release(a)
	p.again(a)
	p.end()
}

// amnesia: nobody pauses, Redis itself hands the lock to two.
func (p *play) amnesia() {
	p.act(true, "Redis forgets", "Nobody pauses. Redis itself lets two in, and counts from 1 again.")
	a, c := p.worker("A"), p.worker("C")
	p.acquire(a)
	seen := p.read(a)
	p.forget()

	p.acquire(c)
	seenByC := p.read(c)

	p.sell(a, 30, seen)
	p.sell(c, 50, seenByC)
	p.release(c)
	p.release(a)
	p.again(a)
	p.end()
}

// again lets a worker that was refused do what the error says.
func (p *play) again(m *member) {
	p.acquire(m)
	p.sell(m, 30, p.read(m))
	p.release(m)
}
