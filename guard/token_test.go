package guard_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

func TestS19_TokenIsADecimalStringInTextAndJSON(t *testing.T) {
	t.Parallel()
	for token, want := range map[guard.Token]string{
		0:                   "0",
		33:                  "33",
		1<<53 + 1:           "9007199254740993",
		9223372036854775807: "9223372036854775807",
	} {
		require.Equal(t, want, token.String())

		text, err := token.MarshalText()
		require.NoError(t, err)
		require.Equal(t, want, string(text))

		data, err := json.Marshal(map[string]guard.Token{"token": token})
		require.NoError(t, err)
		require.JSONEq(t, `{"token":"`+want+`"}`, string(data), "a JSON number would be rounded by JavaScript (S19)")

		var back map[string]guard.Token
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, token, back["token"])
	}
}

func TestTokenAcceptsAnUnquotedJSONInteger(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]guard.Token{
		`33`:                  33,
		`"33"`:                33,
		`0`:                   0,
		`9007199254740993`:    1<<53 + 1,
		`9223372036854775807`: 9223372036854775807,
	} {
		var got guard.Token
		require.NoError(t, json.Unmarshal([]byte(data), &got), data)
		require.Equal(t, want, got, data)
	}

	kept := guard.Token(7)
	require.NoError(t, json.Unmarshal([]byte(`null`), &kept))
	require.Equal(t, guard.Token(7), kept, "null leaves the value alone, as everywhere in encoding/json")
}

func TestTokenRefusesWhatIsNotAToken(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "-1", "-9223372036854775808", "9223372036854775808", "99999999999999999999",
		"1.0", "1.5", "1e3", "0x21", "1_000", " 33", "33 ", "33\n", "thirty-three", "٣٣",
	} {
		got := guard.Token(7)
		err := got.UnmarshalText([]byte(text))
		require.ErrorIs(t, err, guard.ErrInvalid, "text %q", text)
		require.Equal(t, guard.Token(7), got, "a refused text changes nothing")
	}
	for _, data := range []string{
		`-1`, `"-1"`, `1.5`, `"1.5"`, `1e3`, `9223372036854775808`, `"9223372036854775808"`, `""`, `"null"`, `true`, `[33]`, `{}`, `"\u0033"`,
	} {
		got := guard.Token(7)
		err := json.Unmarshal([]byte(data), &got)
		require.ErrorIs(t, err, guard.ErrInvalid, "JSON %s", data)
		require.Equal(t, guard.Token(7), got, "refused JSON changes nothing")
	}

	var token guard.Token
	require.ErrorContains(t, token.UnmarshalText([]byte("-33")), `"-33"`, "the error shows what was refused")
}
