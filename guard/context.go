package guard

import (
	"cmp"
	"context"
	"slices"
)

type contextKey struct{}

// A carrier is a context with fences. It is not made by context.WithValue, which
// would have to allocate the slice's header apart: every acquisition makes one.
type carrier struct {
	context.Context
	fences []Fence
	single [1]Fence // room for one, as there mostly is
}

func (c *carrier) Value(key any) any {
	if _, ok := key.(contextKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// NewContext returns a context that carries fences in addition to those that ctx
// carries already. A fence replaces an earlier one of the same resource.
//
// A lease's context is made this way; call it yourself where a fence arrives from
// another process.
func NewContext(ctx context.Context, fences ...Fence) context.Context {
	c := &carrier{Context: ctx}
	held := append(c.single[:0], Fences(ctx)...)
	for _, f := range fences {
		i, found := find(held, f.Resource)
		if found {
			held[i] = f
		} else {
			held = slices.Insert(held, i, f)
		}
	}
	c.fences = held
	return c
}

// FromContext returns the fence of resource that ctx carries.
func FromContext(ctx context.Context, resource string) (Fence, bool) {
	held := Fences(ctx)
	i, found := find(held, resource)
	if !found {
		return Fence{}, false
	}
	return held[i], true
}

// Fences returns every fence that ctx carries, sorted by resource. The slice is
// shared: do not change it.
func Fences(ctx context.Context) []Fence {
	c, ok := ctx.Value(contextKey{}).(*carrier)
	if !ok {
		return nil
	}
	return c.fences
}

func find(held []Fence, resource string) (int, bool) {
	return slices.BinarySearchFunc(held, resource, func(f Fence, r string) int { return cmp.Compare(f.Resource, r) })
}
