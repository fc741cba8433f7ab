package guard_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

// fence returns a fence of one resource whose nonce and holder follow from name.
func fence(name string, token guard.Token) guard.Fence {
	return guard.Fence{Resource: "inventory:sku-42", Token: token, Nonce: "nonce-" + name, Holder: "worker-" + name}
}

func TestValidateNamesTheOffendingValue(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		change func(f *guard.Fence)
		want   []string
	}{
		"empty resource":             {func(f *guard.Fence) { f.Resource = "" }, []string{"resource name is empty"}},
		"long resource":              {func(f *guard.Fence) { f.Resource = long(513) }, []string{"resource name", long(32), "513", "512"}},
		"control in resource":        {func(f *guard.Fence) { f.Resource = "sku\n42" }, []string{"resource name", `"sku\n42"`, "byte 3"}},
		"NUL in resource":            {func(f *guard.Fence) { f.Resource = "sku\x00" }, []string{`"sku\x00"`}},
		"C1 control in resource":     {func(f *guard.Fence) { f.Resource = "sku\u0085" }, []string{`"sku\u0085"`}},
		"resource that is not UTF-8": {func(f *guard.Fence) { f.Resource = "sku\xff" }, []string{`"sku\xff"`, "UTF-8"}},
		"zero token":                 {func(f *guard.Fence) { f.Token = 0 }, []string{`"inventory:sku-42"`, "token 0"}},
		"negative token":             {func(f *guard.Fence) { f.Token = -33 }, []string{`"inventory:sku-42"`, "token -33"}},
		"empty nonce":                {func(f *guard.Fence) { f.Nonce = "" }, []string{`"inventory:sku-42"`, "nonce is empty"}},
		"long nonce":                 {func(f *guard.Fence) { f.Nonce = long(129) }, []string{"nonce", "129", "128"}},
		"control in nonce":           {func(f *guard.Fence) { f.Nonce = "a\tb" }, []string{`"inventory:sku-42"`, "nonce", "control character at byte 1"}},
		"nonce that is not UTF-8":    {func(f *guard.Fence) { f.Nonce = "\xc3" }, []string{`"inventory:sku-42"`, "nonce", "UTF-8"}},
		"long holder":                {func(f *guard.Fence) { f.Holder = long(257) }, []string{"holder", "257", "256"}},
		"control in holder":          {func(f *guard.Fence) { f.Holder = "a\x7f" }, []string{"holder", `"a\x7f"`}},
		"holder that is not UTF-8":   {func(f *guard.Fence) { f.Holder = "\xa0\xa1" }, []string{"holder", `"\xa0\xa1"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fence("a", 33)
			c.change(&f)
			err := f.Validate()
			require.ErrorIs(t, err, guard.ErrInvalid)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			if f.Nonce != "" {
				require.NotContains(t, err.Error(), f.Nonce, "whoever knows it can act as the holder")
			}
			_, err = f.MarshalText()
			require.ErrorIs(t, err, guard.ErrInvalid, "what no store takes is not sent to another process either")
		})
	}
}

func TestValidateAcceptsTheLimitsAndOddCharacters(t *testing.T) {
	t.Parallel()
	for _, f := range []guard.Fence{
		fence("a", 1),
		fence("a", 9223372036854775807),
		{Resource: "r", Token: 1, Nonce: "n"},
		{Resource: strings.Repeat("x", guard.MaxResource), Token: 1, Nonce: strings.Repeat("n", guard.MaxNonce), Holder: strings.Repeat("h", guard.MaxHolder)},
		{Resource: `a b'c"d%e\f;g?h$1{i}`, Token: 1, Nonce: "é", Holder: "наборщик 🔒"},
	} {
		require.NoError(t, f.Validate(), "%v", f)
		require.NoError(t, guard.ValidateResource(f.Resource))
	}
}

func TestFenceStringIsForPeopleAndKeepsTheNonceOut(t *testing.T) {
	t.Parallel()
	f := fence("a", 33)
	require.Equal(t, `"inventory:sku-42" token 33 of worker-a`, f.String())
	f.Holder = ""
	require.Equal(t, `"inventory:sku-42" token 33`, f.String())
}
