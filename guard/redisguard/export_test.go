package redisguard

// FenceKey returns the name of the fence of a resource.
func FenceKey(g *Guard, resource string) (string, error) { return g.fenceKey(resource) }

// Tagged returns the name that an error proposes for a key.
var Tagged = tagged

// TagOf returns what decides the slot of a key.
var TagOf = tagOf
