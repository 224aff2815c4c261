//! `/dev` of an ephemeral jail: the six harmless kinds of names, whatever devfs.rules(5) says; for
//! Linux programs `shm` as well.

use std::os::fd::{AsFd, OwnedFd};

use colibri_jail_helper::refusal::HelperRefusal;
use colibri_registry::Abi;
use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::sys;

/// Our own set of rules, by a number that devfs.rules(5) has no use for. Not the system's set 4:
/// that one may not be loaded, and an unloaded set shows everything, memory and disks included.
const SET: u16 = 0xc011;

/// The set for Linux programs, in which [`LINUX_SHOWN`] is shown as well.
const LINUX_SET: u16 = 0xc012;

/// The values that are shown. `fd` and `std*` are how a program names its own descriptors.
const SHOWN: &[&str] = &["null", "zero", "random", "urandom", "fd", "fd/*", "std*"];

/// The directory that linux(4) makes for a tmpfs. What else is in it stays hidden.
const LINUX_SHOWN: &str = "shm";

/// The names that may then be there.
const EXPECTED: &[&str] = &[
    "null", "zero", "random", "urandom", "fd", "stdin", "stdout", "stderr",
];

/// Hides everything of a devfs mount but the harmless devices, for devices to come as well, and
/// looks.
///
/// # Errors
/// A rule was refused, or another name is still there: the caller unmounts and starts nothing.
pub(crate) fn restrict(devfs: &OwnedFd, abi: Abi) -> Result<(), HelperRefusal> {
    let failed = |tried| move |error| HelperRefusal::system("devfs", tried, error);
    let (set, more) = match abi {
        Abi::FreeBsd => (SET, None),
        Abi::Linux => (LINUX_SET, Some(LINUX_SHOWN)),
    };
    sys::devfs_add_rule(devfs.as_fd(), set, 1, None).map_err(failed("add the rule that hides"))?;
    for (number, pattern) in (2..).zip(SHOWN.iter().copied().chain(more)) {
        sys::devfs_add_rule(devfs.as_fd(), set, number, Some(pattern))
            .map_err(failed("add a rule that shows"))?;
    }
    sys::devfs_use_set(devfs.as_fd(), set).map_err(failed("apply the rules"))?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut directory =
        Dir::openat(devfs, ".", flags, Mode::empty()).map_err(failed("list /dev"))?;
    for entry in directory.iter() {
        let entry = entry.map_err(failed("list /dev"))?;
        let name = entry.file_name().to_string_lossy();
        if name != "."
            && name != ".."
            && !EXPECTED.contains(&name.as_ref())
            && more != Some(name.as_ref())
        {
            return Err(HelperRefusal::system(
                "devfs",
                "restrict /dev",
                format!("the device {name} is still shown"),
            ));
        }
    }
    Ok(())
}
