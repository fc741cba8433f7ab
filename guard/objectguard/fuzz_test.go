package objectguard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/objectguard"
)

// Whatever is in a bucket, it is foreign and left alone, or an object with a fence that
// a raise does not make worse.
func FuzzObject(f *testing.F) {
	f.Add([]byte("fencing object 1\n{}\n"), int64(1))
	f.Add([]byte(`fencing object 1
{"fences":[{"resource":"r","token":"33","nonce_sha256":"x","holder":"A"}],"write":"w"}
data`), int64(34))
	f.Fuzz(func(t *testing.T, text []byte, token int64) {
		m := newMemory()
		m.objects["r"] = text
		before, err := objectguard.Data(text)
		if err != nil {
			require.ErrorIs(t, err, objectguard.ErrForeign)
		}
		raise := fence("r", guard.Token(token), "B")
		g := open(t, m)
		if raised := g.Raise(t.Context(), raise); raised != nil {
			require.Equal(t, text, m.objects["r"])
			return
		}
		require.NoError(t, err)
		after, err := g.Read(guard.NewContext(t.Context(), raise), "r")
		require.NoError(t, err)
		require.Equal(t, before, after)
	})
}
