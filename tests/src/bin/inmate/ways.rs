//! The ways out of its jail that an agent tries, each by name: docs/attacks.md lists them.

use std::fs::{self, File};
use std::io;
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use nix::errno::Errno;

use crate::say;
use crate::sys::{self, ways as calls};

/// Where an agent has its door.
const DOOR: &str = "/var/run/colibri";

/// Tries one way after the other, `NAME` or `NAME=WHAT`, and says of each what came of it:
/// `WORKED`, or the error.
pub(crate) fn try_all(ways: &[&str]) {
    for way in ways {
        let (name, what) = way.split_once('=').unwrap_or((way, ""));
        let came = match attempt(name, what) {
            Ok(()) => "WORKED".to_owned(),
            Err(error) => match error.raw_os_error() {
                Some(number) => format!("{:?}", Errno::from_raw(number)),
                None => error.to_string(),
            },
        };
        say(&format!("{way}: {came}"));
    }
    say("end");
}

fn attempt(name: &str, what: &str) -> io::Result<()> {
    let number = || what.parse().unwrap_or(0);
    match name {
        "connect" => TcpStream::connect(what).map(drop),
        "raw-socket" => calls::raw_socket(),
        "change-network" => calls::change_network(),
        "talk" => UnixStream::connect(what).map(drop),
        "read" => fs::read(what).map(drop),
        "list" => fs::read_dir(what).map(drop),
        "write" => File::create(what).map(drop),
        "listen-in-door" => UnixListener::bind(format!("{DOOR}/own.sock")).map(drop),
        "unlink-in-door" => fs::remove_file(format!("{DOOR}/colibri.sock")),
        "rename-in-door" => fs::rename(format!("{DOOR}/colibri.sock"), format!("{DOOR}/x")),
        "link-in-door" => fs::hard_link(format!("{DOOR}/colibri.sock"), "/tmp/x"),
        "kill" => calls::signal(number(), libc::SIGKILL),
        "stop" => calls::signal(number(), libc::SIGSTOP),
        "trace" => calls::trace(number()),
        "mount" => calls::mount(),
        "unmount" => calls::unmount(&calls::path(what)),
        "new-confinement" => calls::new_confinement(),
        "join-others" => calls::join_others(),
        "chroot" => calls::chroot(),
        "out-by-directory" => calls::out_by_directory(),
        "file-by-handle" => calls::file_by_handle(),
        "device-node" => calls::device_node(),
        "become-root" => calls::become_root(),
        "root-group" => calls::root_group(),
        "set-user-id" => gains_by(what),
        "raise-limit" => calls::raise_limit(),
        "load-module" => calls::load_module(),
        "set-clock" => calls::set_clock(),
        "set-hostname" => calls::set_hostname(),
        "push-into-terminal" => calls::push_into_terminal(),
        "shared-memory" => calls::shared_memory(number()),
        "core-dump" => calls::core_dump(),
        _ => attempt_here(name, what),
    }
}

/// What one of the two systems has alone.
#[cfg(target_os = "linux")]
fn attempt_here(name: &str, what: &str) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    match name {
        "abstract" => {
            let address = std::os::unix::net::SocketAddr::from_abstract_name(what)?;
            UnixStream::connect_addr(&address).map(drop)
        }
        "packet-socket" => calls::packet_socket(),
        "memory" => calls::read_memory(what.parse().unwrap()),
        "root-of-own-namespace" => calls::root_of_own_namespace(),
        "key-of-session" => calls::key_of_session(),
        // What is there already is opened to be written, not made.
        "change" => File::options().write(true).open(what).map(drop),
        "seize" => calls::seize(what.parse().unwrap()),
        "clone-into-namespaces" => calls::clone_into_namespaces(),
        "set-user-id-in-memory" => gains_by(&calls::set_user_id_in_memory()?),
        "set-user-id-copy" => {
            fs::copy("/proc/self/exe", what)?;
            fs::set_permissions(what, std::os::unix::fs::PermissionsExt::from_mode(0o6755))?;
            gains_by(what)
        }
        "other-addresses" => calls::other_addresses(),
        "vsyscall-page" => calls::vsyscall_page(),
        "capabilities" => calls::capabilities(),
        "privileges-again" => calls::privileges_again(),
        "fill" => calls::fill(what),
        "core-if-dumpable" => calls::core_if_dumpable(),
        "kernel-rings" => calls::kernel_rings(),
        _ => panic!("no way {name}"),
    }
}

#[cfg(target_os = "freebsd")]
fn attempt_here(name: &str, _: &str) -> io::Result<()> {
    panic!("no way {name}")
}

/// Whether a set-user-ID copy of this program runs as somebody else.
fn gains_by(program: &str) -> io::Result<()> {
    let told = Command::new(program).arg("euid").output()?;
    match String::from_utf8_lossy(&told.stdout).trim() == sys::effective_uid().to_string() {
        true => Err(io::Error::other("same user")),
        false => Ok(()),
    }
}

/// Listens where another jail might come, and takes nobody.
pub(crate) fn listen_everywhere() {
    let _in_tmp = UnixListener::bind("/tmp/meet").unwrap();
    #[cfg(target_os = "linux")]
    let _named = {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name("meet").unwrap();
        UnixListener::bind_addr(&address).unwrap()
    };
    let _on_loopback = std::net::TcpListener::bind("127.0.0.1:7777");
    say("ready");
    sys::wait_forever()
}
