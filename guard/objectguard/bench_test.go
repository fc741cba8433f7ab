package objectguard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard/objectguard"
)

// The ratio of fenced to plain is what travels; the times do not. Both wait for the
// disk.
func BenchmarkWrite(b *testing.B) {
	d := newDir(b)
	g := open(b, d)
	ctx, _ := raised(b, g, "r", 33, "A")
	data := make([]byte, 1024)
	b.Run("plain", func(b *testing.B) {
		_, version, err := d.Get(ctx, "plain")
		if err != nil {
			require.ErrorIs(b, err, objectguard.ErrNoObject)
		}
		for b.Loop() {
			data[0]++
			require.NoError(b, d.Put(ctx, "plain", data, version))
			_, version, err = d.Get(ctx, "plain")
			require.NoError(b, err)
		}
	})
	b.Run("fenced", func(b *testing.B) {
		for b.Loop() {
			data[0]++
			require.NoError(b, g.Write(ctx, "r", data))
		}
	})
}
