//! Tells the tests whether they run as root (`cfg(root)`), so that those which need it are reported
//! as ignored, not as passed, where it is missing. With `COLIBRI_TEST_REQUIRE_ROOT=1` none is
//! ignored: they fail. With 0 they are ignored whoever builds: somebody else runs what is built
//! here (`.ci/as-user`). The same for sshd, PostgreSQL and libfaketime.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(root)");
    // Debian's openssh-server, and Debian's place for PostgreSQL's versions and FreeBSD's for the
    // one.
    installed("sshd", &["/usr/sbin/sshd"]);
    installed(
        "postgres",
        &["/usr/lib/postgresql", "/usr/local/bin/initdb"],
    );
    // Debian's place for libfaketime, and FreeBSD's.
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let library = "faketime/libfaketimeMT.so.1";
    let places = [
        format!("/usr/lib/{arch}-linux-gnu/{library}"),
        format!("/usr/local/lib/{library}"),
    ];
    installed("faketime", &places.each_ref().map(String::as_str));
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

/// Sets this name where one of the places of a program is there. Cargo would build anew each time
/// for one that is not: who installs the program later changes this file's time.
fn installed(name: &str, places: &[&str]) {
    println!("cargo::rustc-check-cfg=cfg({name})");
    for place in places.iter().filter(|place| Path::new(place).exists()) {
        println!("cargo::rerun-if-changed={place}");
        println!("cargo::rustc-cfg={name}");
    }
}
