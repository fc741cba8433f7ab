package fencewire

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// ErrUnverified: a value that is no proof of a fence. It is malformed, of an unknown
// key, altered, for another audience, too old, or one too many. Nothing was raised.
var ErrUnverified = errors.New("unverified fence")

// A Verifier takes the values of requests to one service. It is safe for concurrent
// use.
type Verifier struct {
	audience string
	keys     []Key
	maxAge   time.Duration
	guards   []guard.Guard
}

// An Option configures a [Verifier].
type Option func(*Verifier)

// WithMaxAge sets how far the time of signing may lie back, and also ahead, for
// clocks differ. It bounds how long a request may be on its way, or a message in its
// queue, and it is how long a captured value can be replayed: up to twice that if
// the signer's clock is ahead, and a second more, since the time is sent in whole
// seconds and none is refused early. Defaults to 1m; 1s at least.
func WithMaxAge(d time.Duration) Option { return func(v *Verifier) { v.maxAge = d } }

// WithGuards names the stores in which every fence that arrives is raised before
// the request is worked on: those that the service reads and writes. Without them
// the service has to raise the fences itself, before its first read.
func WithGuards(guards ...guard.Guard) Option {
	return func(v *Verifier) { v.guards = append(v.guards, guards...) }
}

// NewVerifier returns a verifier of the values that were signed for audience with
// one of keys.
func NewVerifier(audience string, keys []Key, opts ...Option) (*Verifier, error) {
	v := &Verifier{audience: audience, maxAge: time.Minute}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("fencewire: option %d is nil", i)
		}
		opt(v)
	}
	if err := validName("audience", audience, maxAudience); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("fencewire: the verifier has no key; give it those that callers sign with")
	}
	for i, k := range keys {
		if k.secret == nil {
			return nil, fmt.Errorf("fencewire: key %d is empty; make one with NewKey", i)
		}
		if _, twice := v.key(k.id); twice {
			return nil, fmt.Errorf("fencewire: two keys have the id %q", k.id)
		}
		v.keys = append(v.keys, k)
	}
	if v.maxAge < time.Second {
		return nil, fmt.Errorf("fencewire: the maximum age %v is less than 1s", v.maxAge)
	}
	for i, g := range v.guards {
		if r := reflect.ValueOf(g); !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil() {
			return nil, fmt.Errorf("fencewire: guard %d is nil", i)
		}
	}
	return v, nil
}

// Verify returns a context that carries the fences of a request's values besides
// those of ctx, raised in every guard of the verifier. Without values it is ctx, and
// a guard that is then written to says [guard.ErrNoFence].
//
// It fails with [ErrUnverified] if there is anything wrong with any value, and with
// the guard's error where a fence could not be raised: [guard.ErrStale] if a later
// holder has been here. The texts of errors have no key, MAC or nonce.
func (v *Verifier) Verify(ctx context.Context, values []string) (context.Context, error) {
	fences, err := v.fences(values)
	if err != nil || len(fences) == 0 {
		return ctx, err
	}
	for _, f := range fences {
		for _, g := range v.guards {
			if err := g.Raise(ctx, f); err != nil {
				return ctx, err
			}
		}
	}
	return guard.NewContext(ctx, fences...), nil
}

func (v *Verifier) fences(values []string) ([]guard.Fence, error) {
	var fences []guard.Fence
	size, now := 0, time.Now()
	for _, line := range values {
		for value := range strings.SplitSeq(line, ",") {
			value = strings.Trim(value, " \t")
			if size += len(value); len(fences) == MaxFences || size > MaxBytes {
				return nil, fmt.Errorf("fencewire: a request may have %d values of %d bytes together, this one has more: %w", MaxFences, MaxBytes, ErrUnverified)
			}
			f, err := v.fence(value, now)
			if err != nil {
				return nil, fmt.Errorf("fencewire: value %d: %v: %w", len(fences)+1, err, ErrUnverified)
			}
			for _, other := range fences {
				if other.Resource == f.Resource {
					return nil, fmt.Errorf("fencewire: value %d: the request has two fences of %q: %w", len(fences)+1, f.Resource, ErrUnverified)
				}
			}
			fences = append(fences, f)
		}
	}
	return fences, nil
}

// fence reads one value. It repeats nothing of it in an error that could be a nonce,
// since the error may be an answer to anyone.
func (v *Verifier) fence(value string, now time.Time) (f guard.Fence, err error) {
	if parts := strings.Count(value, ";") + 1; parts != 8 {
		return f, fmt.Errorf("it has %d parts and not the 8 of a signed fence", parts)
	}
	end := strings.LastIndexByte(value, ';')
	signed, mac := value[:end], value[end+1:]
	got, rest, _ := strings.Cut(signed, ";")
	if got != version {
		return f, fmt.Errorf("its version is %.8q, this service knows %q", got, version)
	}
	id, rest, _ := strings.Cut(rest, ";")
	key, known := v.key(id)
	if !known {
		return f, fmt.Errorf("this service does not have the key %.64q", id)
	}
	if !hmac.Equal([]byte(mac), key.mac(v.audience, signed)) {
		return f, fmt.Errorf("its MAC does not match: it was not made for %q with the key %q, or was altered since", v.audience, id)
	}
	// From here on it is what a holder of the key has written.
	issued, text, _ := strings.Cut(rest, ";")
	seconds, err := strconv.ParseInt(issued, 10, 64)
	if err != nil {
		return f, fmt.Errorf("its time of signing %.20q is not a number of seconds", issued)
	}
	// It was signed in the course of that second, perhaps at its end.
	if age := now.Sub(time.Unix(seconds, 0)); age-time.Second >= v.maxAge {
		return f, fmt.Errorf("it was signed %v ago, which is more than %v: it was sent again, was on its way for too long, or the clocks differ", age.Truncate(time.Second), v.maxAge)
	} else if age < -v.maxAge {
		return f, fmt.Errorf("it was signed %v in the future, which is more than %v: the clocks differ", -age.Truncate(time.Second), v.maxAge)
	}
	if err := f.UnmarshalText([]byte(text)); err != nil {
		return f, errors.New("the fence that was signed is none") // not err: it repeats the text
	}
	return f, nil
}

func (v *Verifier) key(id string) (Key, bool) {
	for _, k := range v.keys {
		if k.id == id {
			return k, true
		}
	}
	return Key{}, false
}
