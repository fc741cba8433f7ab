package memlock

// Resources returns how many locks and queues b remembers.
func Resources(b *Backend) (locks, queues int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.locks), len(b.queues)
}
