package guard

import (
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The longest parts of a fence, in bytes. They fit the primary key of every
// supported database and leave a fence small enough for a header.
const (
	MaxResource = 512
	MaxNonce    = 128
	MaxHolder   = 256
)

// A Fence is what one acquisition carries to the stores. It is a value: copy it,
// compare it with ==, send it to another process in its text form.
type Fence struct {
	Resource string // name of what is locked and fenced, e.g. "inventory:sku-42"
	Token    Token  // proposed by a sequencer, grows per resource
	Nonce    string // random, unique per acquisition: tells apart two holders of one token
	Holder   string // a label for people; it takes no part in any rule
}

// Validate reports the first part of the fence that no store would take. The
// error wraps [ErrInvalid], and does not show the nonce.
func (f Fence) Validate() error {
	if err := ValidateResource(f.Resource); err != nil {
		return err
	}
	if f.Token <= 0 {
		return fmt.Errorf("guard: fence of %q: token %d is not positive: %w", f.Resource, f.Token, ErrInvalid)
	}
	if f.Nonce == "" {
		return fmt.Errorf("guard: fence of %q: the nonce is empty; every acquisition needs a random one: %w", f.Resource, ErrInvalid)
	}
	if flaw := flawOf(f.Nonce, MaxNonce); flaw != "" { // which says nothing of the nonce itself
		return fmt.Errorf("guard: fence of %q: the nonce %s; take a random one of letters and digits: %w", f.Resource, flaw, ErrInvalid)
	}
	return validateText("holder", f.Holder, MaxHolder)
}

// ValidateResource reports why name cannot name a resource: it is empty, longer
// than [MaxResource] bytes, not UTF-8, or has a control character. The error
// wraps [ErrInvalid].
func ValidateResource(name string) error {
	if name == "" {
		return fmt.Errorf("guard: the resource name is empty; name what is locked, such as \"inventory:sku-42\": %w", ErrInvalid)
	}
	return validateText("resource name", name, MaxResource)
}

func validateText(what, s string, limit int) error {
	if flaw := flawOf(s, limit); flaw != "" {
		return fmt.Errorf("guard: %s %.64q %s: %w", what, s, flaw, ErrInvalid)
	}
	return nil
}

// flawOf says what is wrong with a text, "" if nothing is.
func flawOf(s string, limit int) string {
	if len(s) > limit {
		return fmt.Sprintf("has %d bytes, the limit is %d", len(s), limit)
	}
	if printable(s) {
		return ""
	}
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fmt.Sprintf("has a control character at byte %d", i)
	}
	return ""
}

// printable reports whether s is nothing but printable ASCII, as most texts are: each is
// looked at several times on its way.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// String describes the fence for people.
func (f Fence) String() string {
	if f.Holder == "" {
		return fmt.Sprintf("%q token %d", f.Resource, f.Token)
	}
	return fmt.Sprintf("%q token %d of %s", f.Resource, f.Token, f.Holder)
}

// LogValue leaves the nonce out of logs, for which slog would take the text form:
// whoever knows it can release the lock or enter as its holder.
func (f Fence) LogValue() slog.Value {
	return slog.GroupValue(slog.String("resource", f.Resource), slog.Int64("token", int64(f.Token)), slog.String("holder", f.Holder))
}

// MarshalText returns the fence as resource;token;nonce;holder, with every byte
// escaped as in a URL that is not a letter, a digit or one of -._~:/@ so that
// the text is safe in a header, an environment variable or a queue message.
func (f Fence) MarshalText() ([]byte, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(f.Resource)+len(f.Nonce)+len(f.Holder)+24)
	b = append(appendEscaped(b, f.Resource), ';')
	b = append(append(b, f.Token.String()...), ';')
	b = append(appendEscaped(b, f.Nonce), ';')
	return appendEscaped(b, f.Holder), nil
}

// UnmarshalText reads what MarshalText wrote. It accepts one spelling only, so
// that equal fences have equal texts, and never returns an invalid fence.
func (f *Fence) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), ";")
	if len(parts) != 4 {
		return fmt.Errorf("guard: fence text %.64q has %d parts, want resource;token;nonce;holder: %w", text, len(parts), ErrInvalid)
	}
	var got Fence
	if err := got.Token.UnmarshalText([]byte(parts[1])); err != nil {
		return err
	}
	for i, field := range []*string{&got.Resource, nil, &got.Nonce, &got.Holder} {
		if field == nil {
			continue
		}
		s, err := unescape(parts[i])
		if err != nil {
			return err
		}
		*field = s
	}
	canonical, err := got.MarshalText()
	if err != nil {
		return err
	}
	if string(canonical) != string(text) {
		return fmt.Errorf("guard: fence text %.64q is not in its canonical form: %w", text, ErrInvalid)
	}
	*f = got
	return nil
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~:/@", c) >= 0
}

const hexDigits = "0123456789ABCDEF"

func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return b
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		hi, lo := -1, -1
		if i+2 < len(s) {
			hi, lo = strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		}
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("guard: fence text has a broken escape in %.64q: %w", s, ErrInvalid)
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), nil
}
