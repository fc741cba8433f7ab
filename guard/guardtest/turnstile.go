package guardtest

import "sync"

// A turnstile makes workers overtake each other without a clock: who pauses there
// goes on when the others have made some steps, or when nobody is left to make
// one.
type turnstile struct {
	mu      sync.Mutex
	moved   sync.Cond
	steps   int
	active  int // workers that have not left
	pausing int // those of them that pause
}

func newTurnstile(workers int) *turnstile {
	t := &turnstile{active: workers}
	t.moved.L = &t.mu
	return t
}

// step tells the pausing workers that one has got on.
func (t *turnstile) step() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps++
	t.moved.Broadcast()
}

// pause lets the others make n steps. It must not be called inside a transaction,
// for which the others may be waiting.
func (t *turnstile) pause(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	until := t.steps + n
	t.pausing++
	defer func() { t.pausing-- }()
	for t.steps < until {
		if t.pausing == t.active {
			t.steps = until
			t.moved.Broadcast()
			return
		}
		t.moved.Wait()
	}
}

// leave is called by a worker that has finished.
func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active--
	t.moved.Broadcast()
}
