package objectguard_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard/guardtest"
	"github.com/go-fencing/fencing/guard/objectguard"
)

// A store is a table in one object, with the fences of all its resources: the suite
// has transactions of several.
type store struct {
	*objectguard.Guard
	object string
}

func newStore(t *testing.T, b objectguard.Bucket, object string) store {
	return store{open(t, b, objectguard.WithObject(func(string) string { return object })), object}
}

func (s store) Update(ctx context.Context, fn func(context.Context, guardtest.Tx) error) error {
	return s.Guard.Update(ctx, s.object, func(old []byte) ([]byte, error) {
		rows := make(table)
		if old != nil {
			if err := json.Unmarshal(old, &rows); err != nil {
				return nil, err
			}
		}
		if err := fn(ctx, rows); err != nil {
			return nil, err
		}
		return json.Marshal(rows)
	})
}

type table map[string]string

func (t table) Get(_ context.Context, key string) (value string, ok bool, err error) {
	value, ok = t[key]
	return value, ok, nil
}

func (t table) Put(_ context.Context, key, value string) error { t[key] = value; return nil }

func (t table) Delete(_ context.Context, key string) error { delete(t, key); return nil }

func TestConformanceOnFiles(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, func(t *testing.T) guardtest.Store { return newStore(t, newDir(t), "table") })
}

func TestConformanceOnS3(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, func(t *testing.T) guardtest.Store {
		server := newS3Server()
		t.Cleanup(server.Close)
		return newStore(t, s3{server.Client(), server.URL}, "table")
	})
}

// The same on a store that loses requests and replies: a write is done once all the
// same, and its outcome is known unless a rival of the same fence came in between.
func TestConformanceOnS3ThatFails(t *testing.T) {
	t.Parallel()
	server := newS3Server()
	t.Cleanup(server.Close)
	server.fault = func(put int) s3Fault {
		switch {
		case put%5 == 0:
			return lostReply
		case put%7 == 0:
			return lostRequest
		case put%11 == 0:
			return conflict
		case put%13 == 0:
			return slowDown
		}
		return none
	}
	for _, check := range guardtest.Checks() {
		if check.Name == "S35_SeveralFencesDoNotDeadlock" {
			continue // it has rivals of the same fence
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		require.NoError(t, check.Func(ctx, newStore(t, s3{server.Client(), server.URL}, check.Name)), check.Name)
		cancel()
	}
	for fault := lostReply; fault <= slowDown; fault++ {
		require.NotZero(t, server.faults[fault], "a fault that did not happen proves nothing")
	}
}
