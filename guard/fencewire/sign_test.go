package fencewire_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/internal/wiretest"
)

// The form is for programs in other languages too: this one is written down, and
// made here without the package.
func TestValueIsTheDocumentedForm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // at midnight of 2000-01-01
		value := wiretest.Values(t, wiretest.Signer(t, "inventory", first), held)[0]
		const signed = "1;k1;946684800;inventory:sku-42;33;5f0c;worker-a"
		h := hmac.New(sha256.New, []byte("first-secret-of-thirty-two-bytes"))
		_, err := h.Write([]byte("fencing-fence\ninventory\n" + signed))
		require.NoError(t, err)
		require.Equal(t, signed+";"+base64.RawURLEncoding.EncodeToString(h.Sum(nil)), value)
		require.Equal(t, signed+";g2RzSMxGGYjh6zwTNrkKkr_tYDoqf3ArnY3WlUsr_1M", value)
	})
}

func TestEveryFenceOfTheContextIsSignedAndArrives(t *testing.T) {
	t.Parallel()
	fences := []guard.Fence{
		{Resource: "a;b,c \"d\"", Token: 1, Nonce: "n;,\"", Holder: "x y"},
		held,
		{Resource: "склад:☃", Token: 9223372036854775807, Nonce: "é", Holder: "Ω"},
	}
	values := wiretest.Values(t, wiretest.Signer(t, "inventory", first), fences...)
	for _, value := range values {
		for _, c := range value {
			require.True(t, c > ' ' && c <= '~' && !strings.ContainsRune(`,"'\`, c), "%q of %s is not safe in a header", c, value)
		}
	}
	v := verifier(t, "inventory", []fencewire.Key{first})
	kept := guard.NewContext(t.Context(), guard.Fence{Resource: "a:before", Token: 7, Nonce: "n"})
	for name, sent := range map[string][]string{
		"one line each":         values,
		"joined by a proxy":     {strings.Join(values, ", ")},
		"joined without spaces": {strings.Join(values, ",")},
		"joined in part":        {values[2], values[0] + " ,\t" + values[1] + " "},
	} {
		ctx, err := v.Verify(kept, sent)
		require.NoError(t, err, name)
		require.Len(t, guard.Fences(ctx), 4, name)
		for _, f := range fences {
			got, ok := guard.FromContext(ctx, f.Resource)
			require.True(t, ok, name)
			require.Equal(t, f, got, name)
		}
	}
}

func TestWithoutFencesThereIsNothingToSignOrToVerify(t *testing.T) {
	t.Parallel()
	require.Empty(t, wiretest.Values(t, wiretest.Signer(t, "inventory", first)))
	for _, none := range [][]string{nil, {}} {
		ctx, err := verifier(t, "inventory", []fencewire.Key{first}).Verify(t.Context(), none)
		require.NoError(t, err)
		require.Equal(t, t.Context(), ctx)
	}
}

func TestSignerRefusesWhatNoVerifierWouldTake(t *testing.T) {
	t.Parallel()
	s := wiretest.Signer(t, "inventory", first)
	_, err := s.Sign(guard.NewContext(t.Context(), guard.Fence{Resource: "r", Nonce: "n"}))
	require.ErrorIs(t, err, guard.ErrInvalid)

	_, err = s.Sign(guard.NewContext(t.Context(), numbered(fencewire.MaxFences+1, "")...))
	require.ErrorContains(t, err, "17 fences, one request takes 16")

	_, err = s.Sign(guard.NewContext(t.Context(), numbered(4, strings.Repeat("%", guard.MaxResource-4))...))
	require.ErrorContains(t, err, "the 4 fences that the context carries need")
}

// What a signer makes up to its bounds, a verifier takes.
func TestBoundsOfSignerAndVerifierAreTheSame(t *testing.T) {
	t.Parallel()
	s, v := wiretest.Signer(t, "inventory", first), verifier(t, "inventory", []fencewire.Key{first})
	_, err := v.Verify(t.Context(), wiretest.Values(t, s, numbered(fencewire.MaxFences, "")...))
	require.NoError(t, err)

	longest := guard.Fence{
		Resource: strings.Repeat("é", guard.MaxResource/2), Token: 1 << 62,
		Nonce: strings.Repeat(";", guard.MaxNonce), Holder: strings.Repeat(",", guard.MaxHolder),
	}
	_, err = v.Verify(t.Context(), wiretest.Values(t, s, longest))
	require.NoError(t, err, "every valid fence can be sent")

	var fits []guard.Fence
	for i := 0; ; i++ { // until one byte more is one too many
		more := append(numbered(12, strings.Repeat("r", 435)), guard.Fence{Resource: strings.Repeat("s", 1+i), Token: 1, Nonce: "n"})
		if _, err := s.Sign(guard.NewContext(t.Context(), more...)); err != nil {
			require.ErrorContains(t, err, "need 6145 bytes, one request takes 6144")
			break
		}
		fits = more
	}
	require.NotEmpty(t, fits)
	values := wiretest.Values(t, s, fits...)
	_, err = v.Verify(t.Context(), values)
	require.NoError(t, err)
	_, err = v.Verify(t.Context(), []string{strings.Join(values, ", ")})
	require.NoError(t, err, "what a proxy puts between them does not count")
}

func numbered(n int, suffix string) (fences []guard.Fence) {
	for i := range n {
		fences = append(fences, guard.Fence{Resource: fmt.Sprintf("r%02d:%s", i, suffix), Token: 1, Nonce: "n"})
	}
	return fences
}

func TestConstructorsRefuseNonsense(t *testing.T) {
	t.Parallel()
	secret := []byte("first-secret-of-thirty-two-bytes")
	for want, make := range map[string]func() error{
		"the key id is empty":                                          func() error { _, err := fencewire.NewKey("", secret); return err },
		`the key id "a;b" has at byte 1`:                               func() error { _, err := fencewire.NewKey("a;b", secret); return err },
		`the key id "a b" has at byte 1`:                               func() error { _, err := fencewire.NewKey("a b", secret); return err },
		"has 65 bytes, the limit is 64":                                func() error { _, err := fencewire.NewKey(strings.Repeat("k", 65), secret); return err },
		`the secret of key "k1" has 31 bytes; it needs 32 random ones`: func() error { _, err := fencewire.NewKey("k1", secret[1:]); return err },
		"the audience is empty":                                        func() error { _, err := fencewire.NewSigner("", first); return err },
		`the audience "a\nb" has at byte 1`:                            func() error { _, err := fencewire.NewSigner("a\nb", first); return err },
		"the key of the signer is empty":                               func() error { _, err := fencewire.NewSigner("a", fencewire.Key{}); return err },
		`the audience "b,c" has at byte 1`:                             func() error { _, err := fencewire.NewVerifier("b,c", []fencewire.Key{first}); return err },
		"the verifier has no key":                                      func() error { _, err := fencewire.NewVerifier("a", nil); return err },
		"key 1 is empty; make one":                                     func() error { _, err := fencewire.NewVerifier("a", []fencewire.Key{first, {}}); return err },
		`two keys have the id "k1"`:                                    func() error { _, err := fencewire.NewVerifier("a", []fencewire.Key{first, second, forged}); return err },
		"the maximum age 999ms is less than 1s": func() error {
			_, err := fencewire.NewVerifier("a", []fencewire.Key{first}, fencewire.WithMaxAge(999e6))
			return err
		},
		"guard 1 is nil": func() error {
			_, err := fencewire.NewVerifier("a", []fencewire.Key{first}, fencewire.WithGuards(guard.NewMemory(), (*guard.Memory)(nil)))
			return err
		},
		"guard 0 is nil": func() error {
			_, err := fencewire.NewVerifier("a", []fencewire.Key{first}, fencewire.WithGuards(nil))
			return err
		},
		"option 0 is nil": func() error { _, err := fencewire.NewVerifier("a", []fencewire.Key{first}, nil); return err },
	} {
		err := make()
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret-of-thirty")
	}
}

// Keys end up in configurations, and those in logs.
func TestPrintingAKeyDoesNotShowItsSecret(t *testing.T) {
	t.Parallel()
	inside := struct {
		key      fencewire.Key
		signer   *fencewire.Signer
		verifier *fencewire.Verifier
	}{first, wiretest.Signer(t, "a", first), verifier(t, "a", []fencewire.Key{first})}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%c"} {
		for _, what := range []any{first, &first, inside, &inside, inside.signer, *inside.signer, inside.verifier, *inside.verifier, []fencewire.Key{first}} {
			printed := fmt.Sprintf(verb, what)
			for _, leak := range []string{"first-secret", fmt.Sprintf("%x", "first-secret"), fmt.Sprintf("%X", "first-secret"), "102 105 114 115", "0x66, 0x69", "f i r s t"} {
				require.NotContains(t, printed, leak)
			}
		}
	}
	require.Equal(t, "k1", first.ID())
}

// The caller may wipe its copy, or use the buffer again.
func TestKeyHasACopyOfTheSecret(t *testing.T) {
	t.Parallel()
	secret := []byte("first-secret-of-thirty-two-bytes")
	k, err := fencewire.NewKey("k1", secret)
	require.NoError(t, err)
	clear(secret)
	_, err = verifier(t, "a", []fencewire.Key{first}).Verify(context.Background(), wiretest.Values(t, wiretest.Signer(t, "a", k), held))
	require.NoError(t, err)
}
