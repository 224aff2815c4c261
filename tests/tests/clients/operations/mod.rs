//! How the daemon is run: socket, signals, reload, gates, processes of servers and their states.

mod bridge;
mod calls;
mod catalog;
mod gates;
mod hidden;
mod processes;
mod reload;
mod socket;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use colibri_tests::{
    Bridge, Client, Daemon, Era, LEGACY, MODERN, Place, code_of, is_alive, kept_of, modern_meta,
    text_of, wait_for,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// The flag that tests running as root have to give.
fn root_flag() -> &'static [&'static str] {
    if nix::unistd::geteuid().is_root() {
        &["--allow-root"]
    } else {
        &[]
    }
}
