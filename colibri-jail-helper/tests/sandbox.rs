//! Servers inside the development sandbox, started by the installed set-user-ID helper: what a good one gets, what a
//! bad one does not, and that nothing of either is left.
#![cfg(target_os = "linux")]

mod installed;

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;

use installed::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn a_server_answers_and_its_end_is_relayed() {
    let Some(mut system) = Installed::new() else { return };
    let (call, _) = system.run("one");
    let outcome = call.with_stdin(b"hello\nworld\n").finish();
    assert_eq!(outcome.stdout, b"hello\nworld\n", "{outcome:?} {:?}", system.audit());
    assert_eq!(outcome.stderr, "helper: started jid=0\n");
    assert_eq!(outcome.code(), Some(0));
    let audit = system.audit();
    assert_eq!(audit.len(), 2, "{audit:?}");
    assert!(audit[0].starts_with("<38>colibri-jail-helper[") && audit[0].contains("event=start entry=one digest="));
    assert!(audit[1].contains("event=end entry=one") && audit[1].contains("status=0") && audit[1].contains("left=nothing"));
    system.assert_nothing_left("echo");
}
