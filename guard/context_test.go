package guard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

type scope struct {
	ctx  context.Context
	want []guard.Fence
}

func named(resource string, token guard.Token) guard.Fence {
	return guard.Fence{Resource: resource, Token: token, Nonce: "n", Holder: "h"}
}

func TestNewContextAddsAndReplaces(t *testing.T) {
	t.Parallel()
	a, b, c := named("a", 1), named("b", 2), named("c", 3)

	require.Empty(t, guard.Fences(t.Context()))
	_, ok := guard.FromContext(t.Context(), "a")
	require.False(t, ok)

	ctx := guard.NewContext(t.Context(), c, a)
	require.Equal(t, []guard.Fence{a, c}, guard.Fences(ctx), "sorted by resource")
	ctx = guard.NewContext(ctx, b)
	require.Equal(t, []guard.Fence{a, b, c}, guard.Fences(ctx), "earlier fences stay")

	ctx = guard.NewContext(ctx, named("b", 20))
	require.Equal(t, []guard.Fence{a, named("b", 20), c}, guard.Fences(ctx), "the newer fence replaces the older one")
	ctx = guard.NewContext(ctx, b)
	require.Equal(t, []guard.Fence{a, b, c}, guard.Fences(ctx), "newer means given later, not a greater token")
	ctx = guard.NewContext(ctx, named("d", 4), named("d", 5))
	got, ok := guard.FromContext(ctx, "d")
	require.True(t, ok)
	require.Equal(t, named("d", 5), got)

	for _, missing := range []string{"", "aa", "B", "e"} {
		got, ok := guard.FromContext(ctx, missing)
		require.False(t, ok, missing)
		require.Zero(t, got)
	}
	require.Equal(t, guard.Fences(ctx), guard.Fences(guard.NewContext(ctx)), "nothing to add keeps what there is")
}

func TestNewContextNeverChangesItsParent(t *testing.T) {
	t.Parallel()
	parent := guard.NewContext(t.Context(), named("b", 1), named("d", 1), named("f", 1))
	want := slices.Clone(guard.Fences(parent))

	// Siblings: a shared array with room behind it would show here.
	left := guard.NewContext(parent, named("g", 2))
	right := guard.NewContext(parent, named("g", 3))
	below := guard.NewContext(left, named("a", 4), named("d", 4))

	require.Equal(t, want, guard.Fences(parent))
	require.Equal(t, append(slices.Clone(want), named("g", 2)), guard.Fences(left))
	require.Equal(t, append(slices.Clone(want), named("g", 3)), guard.Fences(right))
	require.Equal(t, []guard.Fence{named("a", 4), named("b", 1), named("d", 4), named("f", 1), named("g", 2)}, guard.Fences(below))
}

func TestNewContextDoesNotKeepTheCallersSlice(t *testing.T) {
	t.Parallel()
	given := []guard.Fence{named("a", 1), named("b", 1)}
	ctx := guard.NewContext(t.Context(), given...)
	given[0] = named("z", 99)
	require.Equal(t, []guard.Fence{named("a", 1), named("b", 1)}, guard.Fences(ctx))
}

func TestContextsBehaveLikeMapsUnderManyDerivations(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	contexts := []scope{{ctx: t.Context()}}
	for i := range 2000 {
		parent := contexts[rng.IntN(len(contexts))]
		child := scope{ctx: parent.ctx, want: slices.Clone(parent.want)}
		var added []guard.Fence
		for range rng.IntN(4) {
			f := named(fmt.Sprintf("r%d", rng.IntN(12)), guard.Token(i+1))
			added = append(added, f)
			child.want = slices.DeleteFunc(child.want, func(old guard.Fence) bool { return old.Resource == f.Resource })
			child.want = append(child.want, f)
		}
		slices.SortFunc(child.want, func(a, b guard.Fence) int { return strings.Compare(a.Resource, b.Resource) })
		child.ctx = guard.NewContext(parent.ctx, added...)
		contexts = append(contexts, child)
	}
	for _, s := range contexts {
		require.ElementsMatch(t, s.want, guard.Fences(s.ctx))
		require.True(t, slices.IsSortedFunc(guard.Fences(s.ctx), func(a, b guard.Fence) int { return strings.Compare(a.Resource, b.Resource) }))
		for _, f := range s.want {
			got, ok := guard.FromContext(s.ctx, f.Resource)
			require.True(t, ok)
			require.Equal(t, f, got)
		}
	}
}
