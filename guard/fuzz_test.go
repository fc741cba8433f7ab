package guard_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

func FuzzTokenText(f *testing.F) {
	for _, seed := range []string{"0", "33", "9007199254740993", "9223372036854775807", "9223372036854775808", "-1", "+1", "007", "", "1e3", " 1", "١", `1"`, "null"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kept := guard.Token(7)
		if err := kept.UnmarshalText([]byte(text)); err != nil {
			require.ErrorIs(t, err, guard.ErrInvalid)
			require.Equal(t, guard.Token(7), kept)
			requireOneLine(t, err)
			return
		}
		require.GreaterOrEqual(t, kept, guard.Token(0))
		require.Equal(t, text, kept.String(), "a token has one text")
		data, err := json.Marshal(kept)
		require.NoError(t, err)
		require.Equal(t, `"`+text+`"`, string(data))
		for _, form := range []string{text, `"` + text + `"`} {
			var back guard.Token
			require.NoError(t, json.Unmarshal([]byte(form), &back))
			require.Equal(t, kept, back)
		}
	})
}

func FuzzFenceFields(f *testing.F) {
	f.Add("inventory:sku-42", int64(33), "nonce-a", "worker-a")
	f.Add("a;b", int64(9223372036854775807), "n%3B", "x y")
	f.Add("склад", int64(1), "é", "$(rm)\u2028")
	f.Add("r\n", int64(0), "", "\xff")
	f.Fuzz(func(t *testing.T, resource string, token int64, nonce, holder string) {
		sent := guard.Fence{Resource: resource, Token: guard.Token(token), Nonce: nonce, Holder: holder}
		text, err := sent.MarshalText()
		if err != nil {
			require.ErrorIs(t, err, guard.ErrInvalid)
			require.ErrorIs(t, sent.Validate(), guard.ErrInvalid)
			requireOneLine(t, err)
			return
		}
		require.NoError(t, sent.Validate())
		require.Equal(t, 3, strings.Count(string(text), ";"), "a part must not become two")
		requireRoundTrip(t, sent)
		data, err := json.Marshal(sent)
		require.NoError(t, err)
		var back guard.Fence
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, sent, back)
	})
}

func FuzzResourceName(f *testing.F) {
	for _, seed := range []string{"inventory:sku-42", "", "\n", "\u0085", "\xff", "склад", "a{b}", "%s%n", strings.Repeat("é", 256), strings.Repeat("é", 257)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := guard.ValidateResource(name)
		if err != nil {
			require.ErrorIs(t, err, guard.ErrInvalid)
			requireOneLine(t, err)
			return
		}
		require.NotEmpty(t, name)
		require.LessOrEqual(t, len(name), guard.MaxResource)
		for _, r := range strings.ToValidUTF8(name, "\x00") {
			require.GreaterOrEqual(t, r, ' ')
		}
		requireRoundTrip(t, guard.Fence{Resource: name, Token: 1, Nonce: "n"})
	})
}

// requireOneLine keeps a hostile text from writing lines of its own into a log.
func requireOneLine(t *testing.T, err error) {
	t.Helper()
	require.Equal(t, -1, strings.IndexFunc(err.Error(), unicode.IsControl), "%q", err)
}
