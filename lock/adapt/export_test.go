package adapt

// Grants returns the number of resources that b remembers.
func Grants(b *Backend) int {
	b.grants.mu.Lock()
	defer b.grants.mu.Unlock()
	return len(b.grants.of)
}
