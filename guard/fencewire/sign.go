package fencewire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// Header is the name of the header that has the values, one each. In the metadata
// of gRPC it is in lower case, as all names there are.
const Header = "Fencing-Fence"

// The bounds of one request, the same for signer and verifier. They leave room for
// other headers where all of them together are bounded by 8 KiB, as in many proxies
// and in gRPC for Java. A usual fence takes less than 200 bytes.
const (
	MaxFences = 16
	MaxBytes  = 6 << 10 // of all values together
)

const version = "1"

// A Signer makes the values for requests to one service. It is safe for concurrent
// use.
type Signer struct {
	audience string
	key      Key
}

// NewSigner returns a signer of values for the service that calls itself audience:
// 1 to 255 visible ASCII characters without semicolon and comma, such as
// "inventory". Services that stand in for each other share a name.
func NewSigner(audience string, key Key) (*Signer, error) {
	if err := validName("audience", audience, maxAudience); err != nil {
		return nil, err
	}
	if key.secret == nil {
		return nil, errors.New("fencewire: the key of the signer is empty; make one with NewKey")
	}
	return &Signer{audience: audience, key: key}, nil
}

// Sign returns a value for each fence that ctx carries, sorted by resource, and none
// if it carries none. Call it when the request is sent, since values age. It fails
// with [guard.ErrInvalid] for a fence that no store would take, and where the fences
// are more than [MaxFences] or [MaxBytes] allow.
func (s *Signer) Sign(ctx context.Context) ([]string, error) {
	fences := guard.Fences(ctx)
	if len(fences) == 0 {
		return nil, nil
	}
	if len(fences) > MaxFences {
		return nil, fmt.Errorf("fencewire: the context carries %d fences, one request takes %d; send it under fewer locks", len(fences), MaxFences)
	}
	issued := strconv.FormatInt(time.Now().Unix(), 10)
	values, size := make([]string, len(fences)), 0
	for i, f := range fences {
		text, err := f.MarshalText()
		if err != nil {
			return nil, err
		}
		signed := version + ";" + s.key.id + ";" + issued + ";" + string(text)
		values[i] = signed + ";" + string(s.key.mac(s.audience, signed))
		size += len(values[i])
	}
	if size > MaxBytes {
		return nil, fmt.Errorf("fencewire: the %d fences that the context carries need %d bytes, one request takes %d; send it under fewer locks or shorten their names", len(fences), size, MaxBytes)
	}
	return values, nil
}
