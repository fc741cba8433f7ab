package objectguard_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/objectguard"
)

var errLost = errors.New("the connection broke")

// A memory is a bucket in memory, with faults. Its versions are the bytes themselves:
// equal bytes have equal versions.
type memory struct {
	mu         sync.Mutex
	objects    map[string][]byte
	gets, puts int

	// put, if not nil, is called in place of the next Put, which next does.
	put func(next func() error) error
}

func newMemory() *memory { return &memory{objects: make(map[string][]byte)} }

func (m *memory) Get(_ context.Context, key string) (object []byte, version string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	object, found := m.objects[key]
	if !found {
		return nil, "", objectguard.ErrNoObject
	}
	return bytes.Clone(object), "v" + string(object), nil
}

func (m *memory) Put(_ context.Context, key string, object []byte, version string) error {
	m.mu.Lock()
	m.puts++
	put := m.put
	m.put = nil
	m.mu.Unlock()
	object = bytes.Clone(object)
	next := func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		now, found := m.objects[key]
		if !found && version != "" || found && version != "v"+string(now) {
			return objectguard.ErrChanged
		}
		m.objects[key] = object
		return nil
	}
	if put == nil {
		return next()
	}
	return put(next)
}

// lose makes the next Put done or not, and its reply lost either way.
func (m *memory) lose(done bool, then ...func()) {
	m.put = func(next func() error) error {
		if done {
			if err := next(); err != nil {
				return err
			}
		}
		for _, f := range then {
			f()
		}
		return errLost
	}
}

// It is no object that others keep changing.
func TestAnS3BucketThatIsMissingIsAnError(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	err := open(t, s3{server.Client(), server.URL}).Raise(t.Context(), fence("r", 33, "A"))
	require.ErrorContains(t, err, "404 Not Found")
	require.NotErrorIs(t, err, guard.ErrBlocked)
}
