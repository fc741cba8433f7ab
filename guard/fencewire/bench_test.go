package fencewire_test

import (
	"fmt"
	"testing"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/internal/wiretest"
)

func BenchmarkSign(b *testing.B) {
	s := wiretest.Signer(b, "inventory", first)
	for _, n := range []int{1, fencewire.MaxFences} {
		b.Run(fmt.Sprintf("fences=%d", n), func(b *testing.B) {
			ctx := guard.NewContext(b.Context(), numbered(n, "inventory:sku-42")...)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Sign(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	s, v := wiretest.Signer(b, "inventory", first), verifier(b, "inventory", []fencewire.Key{second, first})
	for _, n := range []int{1, fencewire.MaxFences} {
		b.Run(fmt.Sprintf("fences=%d", n), func(b *testing.B) {
			values := wiretest.Values(b, s, numbered(n, "inventory:sku-42")...)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), values); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a caller without a key can make a service do for a request that fails.
func BenchmarkVerifyForged(b *testing.B) {
	v := verifier(b, "inventory", []fencewire.Key{first})
	values := wiretest.Values(b, wiretest.Signer(b, "inventory", forged), held)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(b.Context(), values); err == nil {
			b.Fatal("taken")
		}
	}
}
