package objectguard

import (
	"context"
	"errors"
)

// A Bucket is an object store that writes on a condition. It must be safe for
// concurrent use, and its methods must end when their context does: a guard waits for
// them. There is no method that deletes: the fence would be deleted too.
type Bucket interface {
	// Get returns an object and its version: an ETag, a generation, whatever differs
	// when the bytes differ, and is not empty. Both are those of the last Put that
	// has been answered: a cache or a replica that lags behind will not do. If there
	// is no such object the error is ErrNoObject.
	Get(ctx context.Context, key string) (object []byte, version string, err error)

	// Put replaces an object if it is still of that version, and with version "" makes
	// one where there is none. Condition and write are one step of the store. Otherwise
	// the error is ErrChanged, and nothing was written; after any other error that is
	// unknown.
	//
	// It sends the object once. A client that repeats a request by itself takes its own
	// first attempt for somebody else's: switch that off.
	Put(ctx context.Context, key string, object []byte, version string) error
}

var (
	// ErrNoObject: a [Bucket] has no such object.
	ErrNoObject = errors.New("no such object")

	// ErrChanged: a [Bucket] has an object of another version.
	ErrChanged = errors.New("the object has another version")

	// ErrForeign: an object that no guard has written. It is left alone.
	ErrForeign = errors.New("the object has no fence")
)
