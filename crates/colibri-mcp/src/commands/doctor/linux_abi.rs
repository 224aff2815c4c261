//! The checks of jails whose programs were made for Linux: the kernel's modules, and what their
//! roots need.

use std::path::Path;

use anyhow::bail;
use colibri_registry::Abi;

use super::entries::each_jail;
use super::fact::{Amiss, CheckOutcome, ExaminedHost};
use super::roots::inside;
use super::system::{kernel, run};

/// The modules that service linux loads and jails need, as kldstat(8) names them.
const MODULES: &[&str] = &["linux64elf", "linprocfs", "linsysfs", "fdescfs"];

/// The loaders of Linux programs that are linked dynamically, by C library and processor.
const LOADERS: &[&str] = &[
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

/// The tree of a root that Linux programs look into first.
const TREE: &str = "/compat/linux";

/// Checks that the kernel runs programs made for Linux, if an entry asks for it, and will after a
/// boot.
pub(super) fn linux_kernel(host: &ExaminedHost) -> CheckOutcome {
    let seen = each_jail(host, "a Linux", |id, _, jail| {
        (jail.abi == Abi::Linux).then(|| Ok(id.to_owned()))
    })?;
    let missing: Vec<_> = MODULES
        .iter()
        .copied()
        .filter(|name| {
            !run("/sbin/kldstat", &["-q", "-m", name]).is_ok_and(|ran| ran.status == Some(0))
        })
        .collect();
    if !missing.is_empty() {
        return Err(Amiss::Bad(format!(
            "not loaded, for {seen}: {}",
            missing.join(", ")
        )));
    }
    if kernel("kern.elf64.fallback_brand").as_deref() == Some("-1") {
        let what = "kern.elf64.fallback_brand is -1: programs that do not say what they were made for do not start";
        return Err(Amiss::Bad(what.to_owned()));
    }
    let enabled = run("/usr/sbin/sysrc", &["-n", "linux_enable"])?.out;
    match enabled.eq_ignore_ascii_case("yes") {
        true => Ok(seen),
        false => Err(Amiss::Note(
            "linux_enable is not YES: they are not there after a boot".to_owned(),
        )),
    }
}

/// Checks that the roots of Linux programs have the mount points, and names each one's loader.
pub(super) fn linux_roots(host: &ExaminedHost) -> CheckOutcome {
    each_jail(host, "a Linux", |id, _, jail| {
        let root = jail.path.as_deref().filter(|_| jail.abi == Abi::Linux)?;
        Some(loader(root).map(|found| format!("{id} ({found})")))
    })
}

/// The loader in a root whose mount points are complete.
fn loader(root: &Path) -> anyhow::Result<String> {
    let tree = if root.join(&TREE[1..]).symlink_metadata().is_ok() {
        TREE
    } else {
        ""
    };
    for name in ["dev", "proc", "sys"] {
        let point = root.join(format!("{tree}/{name}").trim_start_matches('/'));
        if !point.symlink_metadata().is_ok_and(|facts| facts.is_dir()) {
            bail!("{} is no directory", point.display());
        }
    }
    let found = LOADERS.iter().map(|loader| format!("{tree}{loader}"));
    let found = found
        .into_iter()
        .find(|loader| inside(root, Path::new(loader)).is_ok_and(|path| path.is_file()));
    Ok(found.unwrap_or_else(|| "no loader: only programs that are linked statically".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_has_its_mount_points_and_a_loader() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let make = |name: &str| std::fs::create_dir_all(root.join(name)).unwrap();
        make("dev");
        make("proc");
        assert!(
            loader(root)
                .unwrap_err()
                .to_string()
                .ends_with("/sys is no directory")
        );
        make("sys");
        assert!(loader(root).unwrap().starts_with("no loader"));
        make("usr/lib");
        std::os::unix::fs::symlink("usr/lib", root.join("lib")).unwrap();
        std::fs::write(root.join("usr/lib/ld-musl-x86_64.so.1"), "").unwrap();
        assert_eq!(loader(root).unwrap(), "/lib/ld-musl-x86_64.so.1");
        make("compat/linux/proc");
        assert!(
            loader(root)
                .unwrap_err()
                .to_string()
                .ends_with("/compat/linux/dev is no directory")
        );
        make("compat/linux/dev");
        make("compat/linux/sys");
        make("compat/linux/lib64");
        std::fs::write(root.join("compat/linux/lib64/ld-linux-x86-64.so.2"), "").unwrap();
        assert_eq!(
            loader(root).unwrap(),
            "/compat/linux/lib64/ld-linux-x86-64.so.2"
        );
    }
}
