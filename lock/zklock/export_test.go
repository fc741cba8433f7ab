package zklock

// Mark is what the name of a nonce's node begins with.
func Mark(nonce string) string { return mark(nonce) }

// Config is for an option that changes nothing.
type Config = config

// Dir is where the nodes of a resource are.
func (b *Backend) Dir(resource string) string { return b.dir(resource) }

// Leftovers returns of how many holds there may be nodes that nobody wants.
func (b *Backend) Leftovers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.leftovers)
}
