//! [`ShiftedClock`]: a time of day that jumps, for one server alone.

use std::ffi::OsString;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

/// The time of day of the processes that live by it can be shifted while they run. The clocks that
/// never jump stay as they are.
#[derive(Clone, Debug)]
pub struct ShiftedClock(Arc<TempDir>);

impl ShiftedClock {
    /// Builds the library that shifts, with `cc`.
    ///
    /// # Panics
    ///
    /// If there is no C compiler.
    pub fn make() -> Self {
        let folder = tempfile::tempdir().expect("there is room for temporary files");
        let source = folder.path().join("shift.c");
        std::fs::write(&source, include_str!("shift.c")).expect("a file can be written");
        std::fs::write(folder.path().join("offset"), [0; 8]).expect("a file can be written");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.path().join("shift.so"));
        let built = compiler.arg(&source).arg("-ldl").output();
        let built = built.unwrap_or_else(|_| {
            panic!("`cc` is missing; please type:\n  sudo apt-get install -y gcc libc6-dev")
        });
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        // For servers of other users as well.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("it is ours");
        Self(Arc::new(folder))
    }

    /// Sets how far ahead it is.
    ///
    /// # Panics
    ///
    /// If the file is gone.
    pub fn ahead(&self, by: Duration) {
        self.shift(i64::try_from(by.as_nanos()).expect("less than 292 years"));
    }

    /// Sets how far behind it is.
    ///
    /// # Panics
    ///
    /// If the file is gone.
    pub fn behind(&self, by: Duration) {
        self.shift(-i64::try_from(by.as_nanos()).expect("less than 292 years"));
    }

    fn shift(&self, nanos: i64) {
        let file = std::fs::OpenOptions::new().write(true).open(self.file("offset"));
        let file = file.expect("the offset is in a file");
        // One write of eight aligned bytes: whoever has it mapped sees all or nothing of it.
        file.write_all_at(&nanos.to_ne_bytes(), 0).expect("the offset can be written");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The variables of a process that lives by it.
    pub(crate) fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.file("shift.so")), ("SPRAG_CLOCK_OFFSET", self.file("offset"))]
    }

    pub(super) fn words(&self) -> [OsString; 2] {
        self.variables().map(|(name, path)| variable(name, path))
    }
}

fn variable(name: &str, path: PathBuf) -> OsString {
    let mut text = OsString::from(name);
    text.push("=");
    text.push(path);
    text
}
