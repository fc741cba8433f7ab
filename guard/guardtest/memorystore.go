package guardtest

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-fencing/fencing/guard"
)

// A MemoryStore is the reference [Store]: guard.Memory over a map. It is safe for
// concurrent use.
type MemoryStore struct {
	fences *guard.Memory
	mu     sync.Mutex
	data   map[string]string
}

// NewMemoryStore returns a store without data and without fences.
func NewMemoryStore() *MemoryStore {
	return &MemoryStore{fences: guard.NewMemory(), data: make(map[string]string)}
}

// Raise implements [guard.Guard].
func (s *MemoryStore) Raise(ctx context.Context, f guard.Fence) error { return s.fences.Raise(ctx, f) }

// Update implements [Store].
func (s *MemoryStore) Update(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	fences := guard.Fences(ctx)
	if len(fences) == 0 {
		return fmt.Errorf("guardtest: update: %w in the context", guard.ErrNoFence)
	}
	return s.enter(ctx, fences, func() error {
		tx := &memoryTx{store: s, changes: make(map[string]*string)}
		if err := fn(ctx, tx); err != nil {
			return err
		}
		tx.commit()
		return nil
	})
}

// enter nests one write in the other. Fences are sorted by resource, so two
// transactions never wait for each other crosswise.
func (s *MemoryStore) enter(ctx context.Context, fences []guard.Fence, fn func() error) error {
	if len(fences) == 0 {
		return fn()
	}
	return s.fences.Write(ctx, fences[0].Resource, func() error { return s.enter(ctx, fences[1:], fn) })
}

// A memoryTx keeps its changes to itself until it commits; nil is a deletion.
type memoryTx struct {
	store   *MemoryStore
	changes map[string]*string
}

func (tx *memoryTx) Get(_ context.Context, key string) (value string, ok bool, err error) {
	if changed, ok := tx.changes[key]; ok {
		if changed == nil {
			return "", false, nil
		}
		return *changed, true, nil
	}
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	value, ok = tx.store.data[key]
	return value, ok, nil
}

func (tx *memoryTx) Put(_ context.Context, key, value string) error {
	tx.changes[key] = &value
	return nil
}

func (tx *memoryTx) Delete(_ context.Context, key string) error {
	tx.changes[key] = nil
	return nil
}

func (tx *memoryTx) commit() {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	for key, value := range tx.changes {
		if value == nil {
			delete(tx.store.data, key)
		} else {
			tx.store.data[key] = *value
		}
	}
}
