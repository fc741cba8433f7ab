package localfile

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestNetworkFileSystemsAreRefused(t *testing.T) {
	t.Parallel()
	require.Equal(t, "NFS", networkFileSystem(&unix.Statfs_t{Type: unix.NFS_SUPER_MAGIC}))
	require.Equal(t, "CIFS", networkFileSystem(&unix.Statfs_t{Type: unix.CIFS_SUPER_MAGIC}))
	require.Empty(t, networkFileSystem(&unix.Statfs_t{Type: unix.EXT4_SUPER_MAGIC}))
	require.NoError(t, CheckFileSystem(os.TempDir()))
}
