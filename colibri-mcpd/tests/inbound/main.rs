//! Agent sockets, over real sockets and servers in memory: who comes in there, what they may do,
//! and what is left.

// Tests may stop where something is wrong.
#![allow(clippy::unwrap_used)]

mod confirm;
mod cost;
mod deferred;
mod failures;
mod retries;
mod rights;
mod roads;
mod world;

use std::os::unix::fs::{PermissionsExt as _, symlink};

use colibri_mcpd::inbound::InboundConnection;
use colibri_mcpd::inbound::lines::serve;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Duration, Instant, sleep, timeout};

use world::{PATIENCE, PERSON, Peer, World};

const REGISTRY: &str = r#"{"servers":{"git":{"command":"/m/git"},"fs":{"command":"/m/fs"}}}"#;
const OPEN: &str = r#"{"others":{"gates":["write","external-call"],"servers":{"*":["*"]}}}"#;
const ALL: &str = r#"{"*":{"allow":["*"]}}"#;
const SESSION: &str = "0123456789abcdef";

/// [`OPEN`] with whoever runs the test as an operator: root is one always.
fn open_with_operator() -> String {
    let rights = json!({"gates": ["write", "external-call"], "servers": {"*": ["*"]}});
    let mut operator = rights.clone();
    operator["operator"] = json!(true);
    json!({"users": {nix::unistd::geteuid().to_string(): operator}, "others": rights}).to_string()
}

#[tokio::test]
async fn a_door_is_a_socket_of_its_own_and_says_whose_calls_they_are() {
    let world = World::new(REGISTRY, OPEN).await;
    let mut agent = world.agent(SESSION, ALL);
    assert_eq!(agent.mode(), [0o700, 0o755, 0o666]);
    assert_eq!(agent.directory, world.path().join("doors").join(SESSION));
    let mut peer = agent.connect().await;
    let answer = peer.call("git__status", json!({"a": 1})).await;
    assert_eq!(
        answer["result"]["content"][0]["text"], r#"status {"a":1}"#,
        "{answer}"
    );

    let trail = world.trail();
    let entered = trail
        .iter()
        .find(|record| record["name"] == "git__status")
        .unwrap();
    let own = nix::unistd::geteuid().as_raw();
    assert_eq!(
        entered["uid"], own,
        "who connected, as the kernel says: {entered}"
    );
    assert_eq!(entered["pid"], std::process::id());
    assert_eq!(
        (&entered["agent"], &entered["session"], &entered["for"]),
        (&json!("coder"), &json!(SESSION), &json!(91001))
    );

    agent.close();
    while let Some(line) = peer.line().await {
        assert!(
            line.contains("list_changed"),
            "its connections end with it: {line}"
        );
    }
    assert!(!agent.directory.exists());
    UnixStream::connect(agent.socket()).await.unwrap_err();
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_line_that_does_not_end_has_a_time_in_all() {
    let world = World::new(REGISTRY, OPEN).await;
    let (mut to, reader) = tokio::io::duplex(1 << 10);
    let (writer, _from) = tokio::io::duplex(1 << 10);
    let served = tokio::spawn(serve(
        InboundConnection::enter(world.daemon.clone(), PERSON),
        reader,
        writer,
    ));
    // Each of these lines ends, and the next has begun.
    for _ in 0..20 {
        to.write_all(b"{}\n{").await.unwrap();
        sleep(Duration::from_secs(5)).await;
    }
    let begun = Instant::now();
    while to.write_all(b"x").await.is_ok() {
        assert!(
            begun.elapsed() < Duration::from_secs(600),
            "the line is read for ever"
        );
        sleep(Duration::from_secs(1)).await;
    }
    assert!(
        begun.elapsed() > Duration::from_secs(50),
        "{:?}",
        begun.elapsed()
    );
    served.await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn a_session_is_sixteen_digits_and_used_once() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let again = world.daemon.doors.open(agent.door.clone(), world::PERSON);
    assert_eq!(
        again.err().unwrap().kind(),
        std::io::ErrorKind::AlreadyExists
    );
    agent.connect().await;
    for bad in [
        "",
        "../../../etc/abc",
        "0123456789ABCDEF",
        "0123456789abcde",
        "0123456789abcdef0",
    ] {
        let door = std::sync::Arc::new(colibri_mcpd::relay::AgentSocket {
            agent: "coder".into(),
            session: bad.into(),
            tools: Default::default(),
            shared_tasks: false,
            max_bytes: None,
            max_bytes_place: Default::default(),
            max_tokens: None,
            flow: Default::default(),
            spent: Default::default(),
            lease: Default::default(),
        });
        let error = world.daemon.doors.open(door, world::PERSON).err().unwrap();
        assert!(error.to_string().contains("sixteen"), "{bad}: {error}");
    }
    assert_eq!(
        std::fs::read_dir(world.path().join("doors"))
            .unwrap()
            .count(),
        1
    );
    world.end().await;
}

#[tokio::test]
async fn http_is_refused_at_a_door_in_one_clear_line() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let mut stream = UnixStream::connect(agent.socket()).await.unwrap();
    stream
        .write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut said = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut said))
        .await
        .unwrap()
        .unwrap();
    assert!(said.starts_with("HTTP/1.1 403 "), "{said}");
    assert!(
        said.contains("takes JSON-RPC, one message a line, and no HTTP"),
        "{said}"
    );
    // It has left: its place is another's.
    drop(stream);
    agent.connect().await;
    world.end().await;
}

#[tokio::test]
async fn a_door_takes_sixteen_connections_and_says_so_to_the_next() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let other = world.agent("fedcba9876543210", ALL);
    let mut peers = Vec::new();
    for _ in 0..16 {
        peers.push(agent.connect().await);
    }
    let mut late = Peer::fresh(&agent.socket()).await;
    let id = late.begin("ping", json!({})).await;
    let answer = late.answer(id).await;
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("has 16 connections"),
        "{answer}"
    );
    assert_eq!(late.line().await, None);
    // Another's agent socket, and the person's own way in, are not full.
    other.connect().await;
    world.operator().await;
    peers.pop();
    for _ in 0..1000 {
        let mut peer = Peer::fresh(&agent.socket()).await;
        let id = peer.begin("ping", json!({})).await;
        if peer.answer(id).await["error"]["data"]["code"] != "LIMIT_USER" {
            world.end().await;
            return;
        }
        sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("a place that is given back is not taken");
}

#[tokio::test]
async fn what_an_earlier_daemon_left_is_removed_and_nothing_else_is() {
    let directory = tempfile::Builder::new().prefix("cd-").tempdir().unwrap();
    let doors = directory.path().join("doors");
    let elsewhere = directory.path().join("elsewhere");
    for name in ["0000000000000001", "0000000000000002", "0000000000000003"] {
        std::fs::create_dir_all(doors.join(name)).unwrap();
        drop(UnixListener::bind(doors.join(name).join("colibri.sock")).unwrap());
    }
    std::fs::create_dir(&elsewhere).unwrap();
    drop(UnixListener::bind(elsewhere.join("colibri.sock")).unwrap());
    std::fs::write(doors.join("0000000000000002/kept"), "k").unwrap();
    symlink(
        elsewhere.join("colibri.sock"),
        doors.join("0000000000000003/link"),
    )
    .unwrap();
    symlink(&elsewhere, doors.join("0000000000000004")).unwrap();
    std::fs::set_permissions(&doors, std::fs::Permissions::from_mode(0o755)).unwrap();

    let world = World::within(directory, REGISTRY, OPEN).await;
    let mut left: Vec<_> = std::fs::read_dir(&doors)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(
        left,
        ["0000000000000002", "0000000000000003", "0000000000000004"]
    );
    assert!(
        elsewhere.join("colibri.sock").exists(),
        "no link is followed"
    );
    assert!(doors.join("0000000000000002/kept").exists());
    let agent = world.agent(SESSION, ALL);
    assert_eq!(agent.mode()[0], 0o700);
    world.end().await;
}

#[tokio::test]
async fn a_directory_that_another_daemon_has_is_left_alone() {
    let world = World::new(REGISTRY, OPEN).await;
    let agent = world.agent(SESSION, ALL);
    let second = colibri_mcpd::inbound::AgentDoors::beside(
        std::sync::Arc::downgrade(&world.daemon),
        &world.daemon.config.socket,
    );
    let error = second
        .open(agent.door.clone(), world::PERSON)
        .err()
        .unwrap();
    assert!(error.to_string().contains("another daemon"), "{error}");
    agent.connect().await;
    world.end().await;
}

#[tokio::test]
async fn doors_are_no_link_to_elsewhere() {
    let directory = tempfile::Builder::new().prefix("cd-").tempdir().unwrap();
    std::fs::create_dir(directory.path().join("elsewhere")).unwrap();
    symlink(
        directory.path().join("elsewhere"),
        directory.path().join("doors"),
    )
    .unwrap();
    let world = World::within(directory, REGISTRY, OPEN).await;
    let door = std::sync::Arc::new(colibri_mcpd::relay::AgentSocket {
        agent: "coder".into(),
        session: SESSION.into(),
        tools: Default::default(),
        shared_tasks: false,
        max_bytes: None,
        max_bytes_place: Default::default(),
        max_tokens: None,
        flow: Default::default(),
        spent: Default::default(),
        lease: Default::default(),
    });
    assert!(world.daemon.doors.open(door, world::PERSON).is_err());
    assert_eq!(
        std::fs::read_dir(world.path().join("elsewhere"))
            .unwrap()
            .count(),
        0
    );
    world.end().await;
}
