package guardtest

import (
	"context"
	"strings"

	"github.com/go-fencing/fencing/guard"
)

// oddNames are names that some store or driver takes for another name, for a
// pattern or for a piece of its own language.
var oddNames = []string{
	"x", "X", "x ", " x", "x  ", "xx", "x_", "x%", "x*", "x?", "x.y", "x:y", "x/y", "x;y", "x,y", "x=y", "x&y", "x|y", "x#y", "x--y", "x/*y*/",
	"x'y", "x''y", `x"y`, "x`y", `x\y`, `x\\y`, `x\`, `x\'y`, `x\n`, `x\000`, "x$1", "x$$y", "x{y}", "{x}", "[x]", "<x>", "(x)", "@x", "~x", "x^", "x!", "x+y", "%s%d%v", "%00", "%27",
	"é", "e\u0301", "É", "e", "ß", "ss", "ı", "i", "I", "ﬁ", "fi", "ａ", "a", "ä", "a\u0308", "склад", "倉庫", "مخزن", "🔒", "🔒🔓", "👩‍🔧", "x\u00a0", "x\u200b", "\u202ex", "\ufeffx", "\U0010ffff",
	"NULL", "null", "0", "00", "1e3", "true", "'; DROP TABLE fence; --",
}

// oddNamesAreKeptApart gives every odd name a fence of its own, and then holds
// each one to account for itself only. Nonces are odd, too.
func oddNamesAreKeptApart(ctx context.Context, store Store) error {
	s := newScene(store)
	prefix := s.of("", "", 0).Resource
	resources := make([]string, 0, len(oddNames)+2)
	for _, name := range oddNames {
		resources = append(resources, prefix+name)
	}
	full := prefix + strings.Repeat("x", guard.MaxResource-len(prefix)-1)
	resources = append(resources, full+"y", full+"z")

	fences := make([]guard.Fence, len(resources))
	for i, resource := range resources {
		odd := oddNames[i%len(oddNames)]
		fences[i] = guard.Fence{Resource: resource, Token: guard.Token(len(resources) - i), Nonce: "n" + odd, Holder: odd}
		s.raise(ctx, fences[i]) // tokens fall, so a name taken for an earlier one is stale
	}
	for _, f := range fences {
		s.write(ctx, f, "under "+f.Nonce)
		s.holds(ctx, f, "under "+f.Nonce)
	}
	for _, f := range fences {
		next := f
		next.Token, next.Nonce = f.Token+1000, "next "+f.Nonce
		s.raise(ctx, next)
		s.writeIsStale(ctx, f, next)
		s.raiseIsStale(ctx, f, next)
	}
	s.oddNoncesAreKeptApart(ctx)
	return s.err
}

// oddNoncesAreKeptApart hands one token to many nonces, of which one has it.
func (s *scene) oddNoncesAreKeptApart(ctx context.Context) {
	holder := s.of("nonces", "A", 33)
	holder.Nonce = "x"
	s.raise(ctx, holder)
	for _, odd := range append([]string{strings.Repeat("x", guard.MaxNonce)}, oddNames[1:]...) {
		rival := holder
		rival.Nonce, rival.Holder = odd, "B"
		s.raiseIsStale(ctx, rival, holder)
		s.writeIsStale(ctx, rival, holder)
	}
	longest := holder
	longest.Token, longest.Nonce, longest.Holder = 34, strings.Repeat("é", guard.MaxNonce/2), strings.Repeat("倉", guard.MaxHolder/3)
	s.raise(ctx, longest)
	s.raise(ctx, longest)
	s.write(ctx, longest, "under the longest nonce")
	s.writeIsStale(ctx, holder, longest)
	s.holds(ctx, longest, "under the longest nonce")
}
