package redislock

// CallsUnderWay is how many calls have been sent, or wait to be sent.
func (b *Backend) CallsUnderWay() int {
	b.calls.mu.Lock()
	defer b.calls.mu.Unlock()
	n := 0
	for _, node := range b.calls.of {
		node.mu.Lock()
		n += node.calls + len(node.waiting) + node.batched
		node.mu.Unlock()
	}
	return n
}
