//! An agent socket, and the calls that come through it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::support::{Daemon, INITIALIZE, connect, registry};

/// A daemon with an agent that does nothing, and its agent socket.
pub(crate) fn open(directory: &Path, command: &[String]) -> (Daemon, PathBuf) {
    let servers = registry();
    let agent = r#""agents":{"still":{"command":"/bin/sh","args":["-c","while :; do sleep 1; done"],"stdin":"null",
        "events":"claude","tools":{"echo":{"allow":["ech*"],"confirm":["write_*"],"deny":["delete_*"]}}}}"#;
    let servers = servers.strip_suffix('}').expect("an object");
    std::fs::write(
        directory.join("registry.json"),
        format!("{servers},{agent}}}"),
    )
    .expect("registry");
    let daemon = Daemon::start_with(directory, "door", command, &["--write"]);
    let mut operator = connect(&daemon.socket);
    operator.write_all(INITIALIZE.as_bytes()).expect("write");
    line(&mut operator);
    operator
        .write_all(
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"colibri/spawn-agent\",\"params\":{\"agent\":\"still\"}}\n",
        )
        .expect("write");
    let answer: serde_json::Value = serde_json::from_str(&line(&mut operator)).expect("an answer");
    let session = answer["result"]["instance"]["id"].as_str();
    let session = session.unwrap_or_else(|| panic!("no agent was started: {answer}"));
    let socket = directory.join("doors").join(session).join("colibri.sock");
    (daemon, socket)
}

fn line(stream: &mut UnixStream) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while stream.read(&mut byte).expect("read") == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("UTF-8")
}
