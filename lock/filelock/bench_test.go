package filelock_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkAcquireRelease is what one pays most of all for: a token on disk. "one
// fsync" is the least that takes.
func BenchmarkAcquireRelease(b *testing.B) {
	dir := b.TempDir()
	l := locker(b, open(b, dir))
	b.Run("lock", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s, err := l.Acquire(context.Background(), resource)
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Release(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
	f, err := os.Create(filepath.Join(dir, "bare"))
	require.NoError(b, err)
	b.Cleanup(func() { _ = f.Close() })
	b.Run("one fsync", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.WriteAt(make([]byte, 700), 0); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRenew and BenchmarkRefused wait for no disk.
func BenchmarkRenew(b *testing.B) {
	backend := open(b, b.TempDir())
	r := request()
	acquire(b, backend, r)
	for b.Loop() {
		if err := backend.Renew(context.Background(), r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefused(b *testing.B) {
	dir := b.TempDir()
	acquire(b, open(b, dir), request())
	backend := open(b, dir)
	for b.Loop() {
		_, _ = backend.Acquire(context.Background(), request())
	}
}
