//! File systems of a size that a test chooses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system on a directory; unmounted when dropped. Needs root.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts one with these options of tmpfs(5).
    ///
    /// # Panics
    /// If it cannot be.
    pub fn on(path: &Path, options: &str) -> Mounted {
        fs::create_dir_all(path).expect("making the directory");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(path);
        assert!(
            mount.status().is_ok_and(|status| status.success()),
            "a tmpfs can be mounted"
        );
        Mounted(path.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
