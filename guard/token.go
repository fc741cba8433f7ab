package guard

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// A Token orders the acquisitions of one resource: a later acquisition has a
// greater token. Valid tokens are positive; 0 means none.
//
// Its text and JSON form is a decimal string, because a JSON number above 2^53
// is rounded by every JavaScript reader.
type Token int64

// String returns the token in decimal.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// MarshalText returns the token in decimal.
func (t Token) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(t), 10), nil }

// UnmarshalText reads a decimal token. It refuses what is not a non-negative
// 64-bit integer.
func (t *Token) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err == nil && strconv.FormatInt(n, 10) != string(text) {
		err = errors.New("it is spelled in another way") // such as +5 or 007: one token, one text
	}
	if err != nil || n < 0 {
		return fmt.Errorf("guard: token %q is not a decimal integer from 0 to 2^63-1: %w", text, ErrInvalid)
	}
	*t = Token(n)
	return nil
}

// UnmarshalJSON reads a token from a JSON string, or from an integer that some
// other writer left unquoted.
func (t *Token) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	if len(data) >= 2 && data[0] == '"' && data[len(data)-1] == '"' {
		data = data[1 : len(data)-1]
	}
	return t.UnmarshalText(data)
}
