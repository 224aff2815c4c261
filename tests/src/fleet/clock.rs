//! Wrong clocks, by libfaketime.

use std::path::{Path, PathBuf};

/// The library, where it is installed: Debian's and FreeBSD's package is `libfaketime`.
pub fn faketime() -> Option<PathBuf> {
    let arch = std::env::consts::ARCH;
    let places = [
        format!("/usr/lib/{arch}-linux-gnu/faketime/libfaketimeMT.so.1"),
        "/usr/local/lib/faketime/libfaketimeMT.so.1".to_owned(),
    ];
    places
        .into_iter()
        .map(PathBuf::from)
        .find(|place| place.exists())
}

/// The environment of a program whose clock is off by what `file` says, such as `+25h`, and follows
/// it. Timers and the times of files are the true ones.
pub fn wrong_clock(library: &Path, file: &Path) -> [(&'static str, String); 5] {
    [
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("NO_FAKE_STAT", "1".to_owned()),
    ]
}
