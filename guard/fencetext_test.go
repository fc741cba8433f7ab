package guard_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

func TestFenceTextIsReadableWhereItCanBe(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]guard.Fence{
		"inventory:sku-42;33;nonce-a;worker-a":        fence("a", 33),
		"r;1;n;":                                      {Resource: "r", Token: 1, Nonce: "n"},
		"a%3Bb;9223372036854775807;n%25;x%20y":        {Resource: "a;b", Token: 9223372036854775807, Nonce: "n%", Holder: "x y"},
		"mail:a@b.c/~d_e;2;n;host%2Cpid%3D7":          {Resource: "mail:a@b.c/~d_e", Token: 2, Nonce: "n", Holder: "host,pid=7"},
		"%22%27%5C%60;3;%2B;%E2%98%83":                {Resource: "\"'\\`", Token: 3, Nonce: "+", Holder: "☃"},
		"%D1%81%D0%BA%D0%BB%D0%B0%D0%B4;4;%C3%A9;%24": {Resource: "склад", Token: 4, Nonce: "é", Holder: "$"},
	} {
		text, err := f.MarshalText()
		require.NoError(t, err)
		require.Equal(t, want, string(text))

		var back guard.Fence
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, f, back)
	}
}

func TestFenceTextCarriesEveryCharacterAndTheLimits(t *testing.T) {
	t.Parallel()
	var every strings.Builder
	for r := rune(' '); r < 0x250; r++ {
		if r < 0x7f || r > 0x9f {
			every.WriteRune(r)
		}
	}
	for part := range chunks(every.String(), guard.MaxNonce) {
		requireRoundTrip(t, guard.Fence{Resource: part, Token: 33, Nonce: part, Holder: part})
	}
	requireRoundTrip(t, guard.Fence{
		Resource: strings.Repeat("\u00ff", guard.MaxResource/2),
		Token:    9223372036854775807,
		Nonce:    strings.Repeat("%", guard.MaxNonce),
		Holder:   strings.Repeat(";", guard.MaxHolder),
	})
}

// chunks yields s in parts of at most n bytes that end between characters.
func chunks(s string, n int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		part := ""
		for _, r := range s {
			if len(part)+len(string(r)) > n {
				if !yield(part) {
					return
				}
				part = ""
			}
			part += string(r)
		}
		yield(part)
	}
}

func requireRoundTrip(t *testing.T, f guard.Fence) {
	t.Helper()
	text, err := f.MarshalText()
	require.NoError(t, err)
	require.NotContains(t, string(text), " ")
	for _, c := range text {
		require.True(t, c > 0x20 && c < 0x7f && !strings.ContainsRune(`"'\,=`, rune(c)), "%q is not safe in a header or a shell", c)
	}
	var back guard.Fence
	require.NoError(t, back.UnmarshalText(text))
	require.Equal(t, f, back)
}

func TestFenceTextAcceptsTheCanonicalFormOnly(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty":                       "",
		"too few parts":               "r;1;n",
		"too many parts":              "r;1;n;h;x",
		"empty resource":              ";1;n;h",
		"empty token":                 "r;;n;h",
		"token zero":                  "r;0;n;h",
		"negative token":              "r;-1;n;h",
		"token with a sign":           "r;+1;n;h",
		"token with a leading zero":   "r;01;n;h",
		"token that is escaped":       "r;%31;n;h",
		"token that overflows":        "r;9223372036854775808;n;h",
		"token that is a float":       "r;1.0;n;h",
		"empty nonce":                 "r;1;;h",
		"space that is not escaped":   "r r;1;n;h",
		"plus for a space escapes":    "r+r;1;n;h",
		"needless escape":             "%72;1;n;h",
		"lower-case escape":           "r%3bx;1;n;h",
		"cut escape":                  "r;1;n;h%2",
		"cut escape at the end":       "r;1;n;h%",
		"escape that is not hex":      "r;1;n;%zz",
		"escaped control character":   "r%0Ax;1;n;h",
		"escape that breaks UTF-8":    "r%FF;1;n;h",
		"raw UTF-8":                   "é;1;n;h",
		"newline at the end":          "r;1;n;h\n",
		"resource above its limit":    strings.Repeat("r", guard.MaxResource+1) + ";1;n;h",
		"nonce above its limit":       "r;1;" + strings.Repeat("n", guard.MaxNonce+1) + ";h",
		"holder above its limit":      "r;1;n;" + strings.Repeat("h", guard.MaxHolder+1),
		"escapes that pass the limit": strings.Repeat("%20", guard.MaxResource+1) + ";1;n;h",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept := fence("a", 33)
			err := kept.UnmarshalText([]byte(text))
			require.ErrorIs(t, err, guard.ErrInvalid)
			require.Less(t, len(err.Error()), 400, "the error does not repeat an endless text")
			require.Equal(t, fence("a", 33), kept, "a refused text changes nothing")
		})
	}
}

func TestFenceTravelsInJSONAsItsText(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(map[string]guard.Fence{"fence": fence("a", 1<<53+1)})
	require.NoError(t, err)
	require.JSONEq(t, `{"fence":"inventory:sku-42;9007199254740993;nonce-a;worker-a"}`, string(data))

	var back map[string]guard.Fence
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, fence("a", 1<<53+1), back["fence"])
}

func FuzzFenceText(f *testing.F) {
	for _, seed := range []string{
		"inventory:sku-42;33;nonce-a;worker-a", "r;1;n;", "a%3Bb;9223372036854775807;n%25;x%20y", "%D1%81;4;%C3%A9;%24",
		"", ";;;", "r;01;n;h", "r;1;n;h%2", "%72;1;n;h", "r%3bx;1;n;h", "r%FF;1;n;h", "r;1;n;h;", "r;-1;n;h", "r%0A;1;n;h", "é;1;n;h",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got guard.Fence
		if err := got.UnmarshalText(text); err != nil {
			require.ErrorIs(t, err, guard.ErrInvalid)
			require.Zero(t, got)
			return
		}
		require.NoError(t, got.Validate())
		back, err := got.MarshalText()
		require.NoError(t, err)
		require.Equal(t, string(text), string(back), "a fence has one text")
	})
}
