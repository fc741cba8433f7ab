package fencewire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// MinSecret is the least length of a key's secret, in bytes: that of the MAC.
const MinSecret = sha256.Size

const (
	maxKeyID    = 64
	maxAudience = 255
)

// A Key is a secret that services share, and its id, by which a value names it.
// Make one with [NewKey]. Printing a key does not show its secret.
type Key struct {
	id     string
	secret func() []byte // of a function fmt prints the address; of a slice or a pointer, with a verb that does not fit, what is in it
}

// NewKey returns the key of that id: 1 to 64 visible ASCII characters without
// semicolon and comma, and no secret itself. The secret is [MinSecret] random bytes
// or more, such as crypto/rand.Read gives; it is copied.
func NewKey(id string, random []byte) (Key, error) {
	if err := validName("key id", id, maxKeyID); err != nil {
		return Key{}, err
	}
	if len(random) < MinSecret {
		return Key{}, fmt.Errorf("fencewire: the secret of key %q has %d bytes; it needs %d random ones or more", id, len(random), MinSecret)
	}
	random = bytes.Clone(random)
	return Key{id: id, secret: func() []byte { return random }}, nil
}

// ID returns the id of the key.
func (k Key) ID() string { return k.id }

// mac returns the encoded MAC of a value without its own.
func (k Key) mac(audience, signed string) []byte {
	h := hmac.New(sha256.New, k.secret())
	b := make([]byte, 0, 512)
	b = append(b, "fencing-fence\n"...)
	b = append(append(b, audience...), '\n') // a name has no line feed: no two pairs give one text
	_, _ = h.Write(append(b, signed...))     // a hash takes everything
	var sum [sha256.Size]byte
	return base64.RawURLEncoding.AppendEncode(make([]byte, 0, 43), h.Sum(sum[:0]))
}

func validName(what, name string, limit int) error {
	if name == "" {
		return fmt.Errorf("fencewire: the %s is empty", what)
	}
	if len(name) > limit {
		return fmt.Errorf("fencewire: the %s %.32q… has %d bytes, the limit is %d", what, name, len(name), limit)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ';' || r == ',' }); i >= 0 {
		return fmt.Errorf("fencewire: the %s %q has at byte %d what is not a visible ASCII character other than semicolon and comma", what, name, i)
	}
	return nil
}
