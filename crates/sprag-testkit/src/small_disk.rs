//! [`SmallDisk`]: a disk that is soon full.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A disk of a few pages, gone with the test.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one in a new folder. If this machine does not let us, the test fails, unless the one who
    /// runs it knows: then there is none.
    ///
    /// # Panics
    ///
    /// If it cannot be mounted, and `SPRAG_SKIP` does not name `mount`.
    pub fn mount(path: PathBuf, size: &str) -> Option<Self> {
        std::fs::create_dir(&path).expect("a folder can be made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size},mode=777"), "tmpfs"]).arg(&path);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Self(path));
        }
        let skipped = std::env::var("SPRAG_SKIP").unwrap_or_default();
        assert!(
            skipped.split([',', ' ']).any(|word| word == "mount"),
            "this machine refuses to mount a small disk: run as root, or set SPRAG_SKIP=mount to go \
             without this test"
        );
        None
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("--lazy").arg(&self.0).status().ok();
    }
}
