//! Tells the tests whether they run as root (`cfg(root)`), so that those which need it are reported as ignored, not as
//! passed, where it is missing. With `COLIBRI_TEST_REQUIRE_ROOT=1` none is ignored: they fail.

use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(root)");
    // What changes with who runs cargo.
    for variable in ["COLIBRI_TEST_REQUIRE_ROOT", "HOME", "LOGNAME", "USER"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let required = std::env::var("COLIBRI_TEST_REQUIRE_ROOT").is_ok_and(|value| value == "1");
    let id = Command::new("id").arg("-u").output();
    let root = id.is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    if root || required {
        println!("cargo::rustc-cfg=root");
    }
}
