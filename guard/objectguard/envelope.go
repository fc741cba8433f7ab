package objectguard

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// magic begins every object. A line of JSON follows, the header, and then the data.
const magic = "fencing object 1\n"

// A header is what an object has besides its data.
type header struct {
	Fences []record `json:"fences"` // sorted by resource

	// Write is another one with every write of data, and stays the same with a raise.
	// So versions that are hashes differ even if the data is the same as before, and a
	// writer whose reply was lost can find its own write.
	Write string `json:"write"`

	None bool `json:"none,omitempty"` // no data: not written yet, or deleted
}

// A record is a fence as an object has it. It has no nonce, only its hash, since more
// people may read the object than may write it.
type record struct {
	Resource string      `json:"resource"`
	Token    guard.Token `json:"token"`
	Nonce    string      `json:"nonce_sha256"`
	Holder   string      `json:"holder"`
	Since    time.Time   `json:"since"`
}

type object struct {
	header
	data []byte
}

// parse reads an object.
func parse(text []byte) (object, error) {
	var o object
	rest, ours := bytes.CutPrefix(text, []byte(magic))
	line, data, whole := bytes.Cut(rest, []byte("\n"))
	if !ours || !whole {
		return o, fmt.Errorf("%w: it does not begin as those of this package; to guard its data, write it to another name", ErrForeign)
	}
	if err := json.Unmarshal(line, &o.header); err != nil {
		return o, fmt.Errorf("%w: its header is damaged: %w", ErrForeign, err)
	}
	for _, r := range o.Fences {
		if r.Token <= 0 || r.Nonce == "" {
			return o, fmt.Errorf("%w: its header is damaged: the fence of %q has token %d", ErrForeign, r.Resource, r.Token)
		}
	}
	if !slices.IsSortedFunc(o.Fences, func(a, b record) int { return cmp.Compare(a.Resource, b.Resource) }) {
		return o, fmt.Errorf("%w: its header is damaged: the fences are not sorted", ErrForeign)
	}
	o.data = data
	return o, nil
}

func (o object) text() ([]byte, error) {
	line, err := json.Marshal(o.header)
	if err != nil {
		return nil, err
	}
	text := make([]byte, 0, len(magic)+len(line)+1+len(o.data))
	text = append(append(text, magic...), line...)
	return append(append(text, '\n'), o.data...), nil
}

// Data returns the data of an object as it is in its bucket, for readers without a
// fence. It is nil if there is none: never written, or deleted. An object that no
// guard has written is [ErrForeign].
func Data(text []byte) ([]byte, error) {
	o, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("objectguard: %w", err)
	}
	return o.content(), nil
}

// content is the data, nil if there is none.
func (o object) content() []byte {
	switch {
	case o.None:
		return nil
	case o.data == nil:
		return []byte{}
	}
	return o.data
}

func (o *object) find(resource string) (int, bool) {
	return slices.BinarySearchFunc(o.Fences, resource, func(r record, resource string) int { return cmp.Compare(r.Resource, resource) })
}

// current returns the fence in force, with the hash for the nonce.
func (o *object) current(resource string) guard.Record {
	i, found := o.find(resource)
	if !found {
		return guard.Record{}
	}
	r := o.Fences[i]
	return guard.Record{Fence: guard.Fence{Resource: resource, Token: r.Token, Nonce: r.Nonce, Holder: r.Holder}, Since: r.Since}
}

// raise makes f the current fence, and reports whether that changes anything.
func (o *object) raise(f guard.Fence, now time.Time) (changed bool, err error) {
	before := o.current(f.Resource)
	if err := before.Raise(hashed(f)); err != nil {
		return false, plain(err, f)
	}
	if before.Fence.Token == f.Token {
		return false, nil
	}
	r := record{Resource: f.Resource, Token: f.Token, Nonce: hashed(f).Nonce, Holder: f.Holder, Since: now}
	if i, found := o.find(f.Resource); found {
		o.Fences[i] = r
	} else {
		o.Fences = slices.Insert(o.Fences, i, r)
	}
	return true, nil
}

// enter returns why one of the fences is not the current one.
func (o *object) enter(held []guard.Fence) error {
	for _, f := range held {
		if err := o.current(f.Resource).Enter(hashed(f)); err != nil {
			return plain(err, f)
		}
	}
	return nil
}

func hashed(f guard.Fence) guard.Fence {
	sum := sha256.Sum256([]byte(f.Nonce))
	f.Nonce = hex.EncodeToString(sum[:])
	return f
}

// plain puts the fence itself into the refusal of one that was hashed.
func plain(err error, f guard.Fence) error {
	if stale, ok := errors.AsType[*guard.StaleError](err); ok {
		stale.Held, stale.Current.Nonce = f, ""
	} else if absent, ok := errors.AsType[*guard.NotRaisedError](err); ok {
		absent.Held, absent.Current.Nonce = f, ""
	}
	return err
}
