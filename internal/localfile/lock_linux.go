package localfile

import "golang.org/x/sys/unix"

// networkFileSystems by the numbers of statfs(2).
var networkFileSystems = map[uint32]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.CEPH_SUPER_MAGIC: "Ceph", unix.AFS_SUPER_MAGIC: "AFS", unix.CODA_SUPER_MAGIC: "Coda", unix.NCP_SUPER_MAGIC: "NCP",
	unix.OCFS2_SUPER_MAGIC: "OCFS2", unix.V9FS_MAGIC: "9P", 0x01161970: "GFS2", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS",
	unix.FUSE_SUPER_MAGIC: "FUSE",
}

func networkFileSystem(s *unix.Statfs_t) string { return networkFileSystems[uint32(s.Type)] }
