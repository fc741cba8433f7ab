package filelock

import (
	"slices"
	"sync"

	"github.com/go-fencing/fencing/lock"
)

// watchers are those of this back end who wait, by resource.
type watchers struct {
	mu sync.Mutex
	of map[string][]chan struct{}
}

// Watch implements [lock.Waiter] for locks that are held through the same back end.
// Those of other processes are found free by asking.
func (b *Backend) Watch(r lock.Request) (wake <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	w := &b.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = make(map[string][]chan struct{})
	}
	w.of[r.Resource] = append(w.of[r.Resource], c)
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		rest := slices.DeleteFunc(w.of[r.Resource], func(other chan struct{}) bool { return other == c })
		if w.of[r.Resource] = rest; len(rest) == 0 {
			delete(w.of, r.Resource)
		}
	}
}

func (w *watchers) wake(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.of[resource] {
		select {
		case c <- struct{}{}:
		default: // it has a wake-up waiting
		}
	}
}
