package objectguard_test

import (
	"context"
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard/objectguard"
	"github.com/go-fencing/fencing/internal/localfile"
)

// lockObject locks the only object in dir, as a Put does.
func lockObject(t *testing.T, dir string) (unlock func()) {
	t.Helper()
	f, err := os.Open(objectFile(t, dir))
	require.NoError(t, err)
	require.NoError(t, localfile.Lock(f, localfile.Exclusive))
	return func() { require.NoError(t, f.Close()) }
}

// What a Bucket promises, of the two that there are here.
func TestBuckets(t *testing.T) {
	t.Parallel()
	server := newS3Server()
	t.Cleanup(server.Close)
	for name, b := range map[string]objectguard.Bucket{"Dir": newDir(t), "S3": s3{server.Client(), server.URL}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			_, _, err := b.Get(ctx, "a/b")
			require.ErrorIs(t, err, objectguard.ErrNoObject)
			require.ErrorIs(t, b.Put(ctx, "a/b", []byte("x"), `"other"`), objectguard.ErrChanged, "there is none to match")
			require.NoError(t, b.Put(ctx, "a/b", []byte("first"), ""))
			require.ErrorIs(t, b.Put(ctx, "a/b", []byte("second"), ""), objectguard.ErrChanged)
			object, version, err := b.Get(ctx, "a/b")
			require.NoError(t, err)
			require.Equal(t, "first", string(object))
			require.NotEmpty(t, version)
			require.NoError(t, b.Put(ctx, "a/b", []byte("second"), version))
			require.ErrorIs(t, b.Put(ctx, "a/b", []byte("third"), version), objectguard.ErrChanged)
			object, next, err := b.Get(ctx, "a/b")
			require.NoError(t, err)
			require.Equal(t, "second", string(object))
			require.NotEqual(t, version, next)
			_, _, err = b.Get(ctx, "a_b")
			require.ErrorIs(t, err, objectguard.ErrNoObject, "another name")

			// Of many at once one gets in.
			for _, version := range []string{"", next} {
				key := "new"
				if version != "" {
					key = "a/b"
				}
				var group sync.WaitGroup
				outcomes := make(chan error, 8)
				for i := range cap(outcomes) {
					group.Go(func() { outcomes <- b.Put(ctx, key, []byte{byte(i)}, version) })
				}
				group.Wait()
				close(outcomes)
				won := 0
				for err := range outcomes {
					if err == nil {
						won++
						continue
					}
					require.ErrorIs(t, err, objectguard.ErrChanged)
				}
				require.Equal(t, 1, won, key)
			}
			dead, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorIs(t, b.Put(dead, "dead", nil, ""), context.Canceled)
			_, _, err = b.Get(ctx, "dead")
			require.ErrorIs(t, err, objectguard.ErrNoObject)
		})
	}
}

func TestNewDirRefuses(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := objectguard.NewDir(missing)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "missing")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = objectguard.NewDir(file)
	require.Error(t, err)
	_, err = objectguard.NewDir("")
	require.ErrorContains(t, err, "it has no name")
}

func TestDraftsOfACrashAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, young := filepath.Join(dir, rand.Text()+".draft"), filepath.Join(dir, rand.Text()+".draft")
	precious := filepath.Join(dir, "letter to my lawyer.draft")
	hourAgo := time.Now().Add(-61 * time.Minute)
	for _, path := range []string{old, young, precious} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		if path != young {
			require.NoError(t, os.Chtimes(path, hourAgo, hourAgo))
		}
	}
	_, err := objectguard.NewDir(dir)
	require.NoError(t, err)
	require.NoFileExists(t, old)
	require.FileExists(t, young, "its process may be alive")
	require.FileExists(t, precious, "it is none of ours")
}

// An object's name is followed nowhere.
func TestASymbolicLinkIsNoObject(t *testing.T) {
	t.Parallel()
	d, dir := dirAt(t)
	require.NoError(t, d.Put(t.Context(), "k", []byte("x"), ""))
	path, elsewhere := objectFile(t, dir), filepath.Join(t.TempDir(), "elsewhere")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(elsewhere, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(elsewhere, path))
	_, version, err := d.Get(t.Context(), "k")
	require.Error(t, err)
	require.Error(t, d.Put(t.Context(), "k", []byte("y"), version+"?"))
	text, err := os.ReadFile(elsewhere)
	require.NoError(t, err)
	require.Equal(t, "secret", string(text))
}
