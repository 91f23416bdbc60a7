//! Refuses file systems that several machines see: their file locks and memory maps lie.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatFs, StatxFlags, statx};
use sprag_core::{ErrorKind, Result};

use crate::error::{error, from_io};

/// What is to be done with a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Local: file locks and shared memory work.
    Fine,
    /// Local or not, it does not say.
    Unsure(&'static str),
    /// Several machines may see it.
    Shared(&'static str),
}

/// Judges a file system by the magic number that statfs gives.
const fn judge(magic: u32) -> Verdict {
    match magic {
        0x6969 => Verdict::Shared("NFS"),
        0x517B => Verdict::Shared("SMB"),
        0xFF53_4D42 => Verdict::Shared("CIFS"),
        0xFE53_4D42 => Verdict::Shared("SMB2"),
        0x0102_1997 => Verdict::Shared("9p"),
        0x5346_414F | 0x6B41_4653 => Verdict::Shared("AFS"),
        0x00C3_6400 => Verdict::Shared("Ceph"),
        0x0BD0_0BD0 => Verdict::Shared("Lustre"),
        0x4750_4653 => Verdict::Shared("GPFS"),
        0x1983_0326 => Verdict::Shared("BeeGFS"),
        0xAAD7_AAEA => Verdict::Shared("PanFS"),
        0x0116_1970 => Verdict::Shared("GFS2"),
        0x7461_636F => Verdict::Shared("OCFS2"),
        0x7375_7245 => Verdict::Shared("Coda"),
        0x564C => Verdict::Shared("NCP"),
        0x786F_4256 => Verdict::Shared("a VirtualBox shared folder"),
        0xBACB_ACBC => Verdict::Shared("a VMware shared folder"),
        0x7C7C_6673 => Verdict::Shared("a Parallels shared folder"),
        // sshfs and s3fs, but also local ones such as NTFS and encrypted folders.
        0x6573_5546 => Verdict::Unsure("FUSE"),
        _ => Verdict::Fine,
    }
}

/// The number that says what file system it is.
fn magic(found: &StatFs) -> u32 {
    // The field is signed on some machines and wider than the number on others.
    u32::try_from(found.f_type & 0xFFFF_FFFF).unwrap_or(0)
}

/// What the file system is called, if it may be one that other machines see.
pub(crate) fn unsure(found: &StatFs) -> Option<&'static str> {
    match judge(magic(found)) {
        Verdict::Fine => None,
        Verdict::Unsure(kind) | Verdict::Shared(kind) => Some(kind),
    }
}

/// How the number is found of the file system that a path is on.
pub(crate) type Reader<'a> = &'a dyn Fn(&Path) -> io::Result<u32>;

/// Asks the kernel.
pub(crate) fn ask_kernel(path: &Path) -> io::Result<u32> {
    Ok(magic(&rustix::fs::statfs(path)?))
}

/// Checks the file system that `path` is on.
pub(crate) fn check(path: &Path, read: Reader<'_>) -> Result<()> {
    let found = read(path).map_err(|e| from_io("examine the file system of", path, e))?;
    let shown = path.display();
    match judge(found) {
        Verdict::Fine => Ok(()),
        Verdict::Unsure(kind) => {
            tracing::warn!(
                directory = %shown,
                "the state directory is on {kind}: locks are safe only if no other machine sees it"
            );
            Ok(())
        }
        Verdict::Shared(kind) => Err(error(
            ErrorKind::Refused,
            format!(
                "{shown} is on {kind}, where file locks do not exclude other machines: use a \
                 directory on a local disk, or a store made for several machines"
            ),
        )),
    }
}

/// Refuses a database that is mounted without its directory, as with `docker run -v x.db:/x.db`:
/// the files beside it are others than those on the other side of the mount, and each side would
/// take the other for dead. A kernel before 5.8 tells it in the list of mounts only.
pub(crate) fn check_mount(database: &Path, directory: &Path) -> Result<()> {
    let mount = |path: &Path| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
    };
    let is_alone = match (mount(database), mount(directory)) {
        (Some(file), Some(folder)) => file != folder,
        _ => std::fs::read("/proc/self/mountinfo").is_ok_and(|it| is_mount_point(&it, database)),
    };
    if !is_alone {
        return Ok(());
    }
    let shown = database.display();
    let message = format!(
        "{shown} is mounted without its directory, so the files beside it are not shared: mount the \
         directory that it is in instead of the file"
    );
    Err(error(ErrorKind::Refused, message))
}

/// Whether something is mounted at `path`, by the kernel's list of mounts: its fifth column, in which
/// some characters are written in octal.
fn is_mount_point(mounts: &[u8], path: &Path) -> bool {
    let mut shown = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => shown.extend(format!("\\{byte:03o}").bytes()),
            _ => shown.push(*byte),
        }
    }
    let mut lines = mounts.split(|byte| *byte == b'\n');
    lines.any(|line| line.split(|byte| *byte == b' ').nth(4) == Some(&shown[..]))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Verdict, is_mount_point, judge};

    #[test]
    fn the_list_of_mounts_tells_of_a_file_that_is_mounted_alone() {
        let mounts = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            31 22 254:0 /srv/x.db /data/my\\040locks.db rw - ext4 /dev/vda rw\n";
        let is_one = |path: &str| is_mount_point(mounts, Path::new(path));
        assert!(is_one("/data/my locks.db") && is_one("/"));
        assert!(!is_one("/data") && !is_one("/data/my") && !is_one("/srv/x.db"));
        let kernel = std::fs::read("/proc/self/mountinfo").unwrap();
        assert!(is_mount_point(&kernel, Path::new("/proc")));
    }

    #[test]
    fn network_file_systems_are_refused_and_local_ones_are_not() {
        for magic in [0x6969, 0xFF53_4D42, 0xFE53_4D42, 0x0102_1997, 0x00C3_6400, 0x0BD0_0BD0] {
            assert!(matches!(judge(magic), Verdict::Shared(_)), "{magic:x}");
        }
        assert_eq!(judge(0x6573_5546), Verdict::Unsure("FUSE"));
        // ext4, xfs, btrfs, tmpfs, overlayfs, f2fs, zfs.
        for magic in
            [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0xF2F5_2010, 0x2FC1_2FC1]
        {
            assert_eq!(judge(magic), Verdict::Fine, "{magic:x}");
        }
    }
}
