package guard

import (
	"cmp"
	"context"
	"slices"
)

type contextKey struct{}

// NewContext returns a context that carries fences in addition to those that ctx
// carries already. A fence replaces an earlier one of the same resource.
//
// A lease's context is made this way; call it yourself where a fence arrives from
// another process.
func NewContext(ctx context.Context, fences ...Fence) context.Context {
	held := slices.Clone(Fences(ctx))
	for _, f := range fences {
		i, found := find(held, f.Resource)
		if found {
			held[i] = f
		} else {
			held = slices.Insert(held, i, f)
		}
	}
	return context.WithValue(ctx, contextKey{}, held)
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
	held, _ := ctx.Value(contextKey{}).([]Fence)
	return held
}

func find(held []Fence, resource string) (int, bool) {
	return slices.BinarySearchFunc(held, resource, func(f Fence, r string) int { return cmp.Compare(f.Resource, r) })
}
