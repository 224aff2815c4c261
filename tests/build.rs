//! Tells the tests whether they run as root (`cfg(root)`), so that those which need it are reported as ignored, not as
//! passed, where it is missing. With `COLIBRI_TEST_REQUIRE_ROOT=1` none is ignored: they fail. With 0 they are ignored
//! whoever builds: somebody else runs what is built here (`.ci/as-user`).

use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(root)");
    // Debian's openssh-server, which not every machine has.
    println!("cargo::rustc-check-cfg=cfg(sshd)");
    println!("cargo::rerun-if-changed=/usr/sbin/sshd");
    if std::path::Path::new("/usr/sbin/sshd").exists() {
        println!("cargo::rustc-cfg=sshd");
    }
    // What changes with who runs cargo.
    for variable in ["COLIBRI_TEST_REQUIRE_ROOT", "HOME", "LOGNAME", "USER"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let is_root = match std::env::var("COLIBRI_TEST_REQUIRE_ROOT").as_deref() {
        Ok("1") => true,
        Ok("0") => false,
        _ => Command::new("id")
            .arg("-u")
            .output()
            .is_ok_and(|id| id.stdout.trim_ascii() == b"0"),
    };
    if is_root {
        println!("cargo::rustc-cfg=root");
    }
}
