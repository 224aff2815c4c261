//! The room that bodies take.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use colibri_peer::ByteBudget;
use colibri_policy::{AgentTools, UserSlots};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;

use super::exchange::{Relay, RelayContext, serve};
use crate::registry::parse;
use crate::relay::{AgentSocket, AgentUsage};

/// A model that reads every request and answers none until it is let.
struct SilentModel {
    address: SocketAddr,
    /// The requests that it has read whole.
    read: Arc<watch::Sender<usize>>,
    answers: Arc<watch::Sender<bool>>,
}

impl SilentModel {
    async fn start() -> SilentModel {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model = SilentModel {
            address: listener.local_addr().unwrap(),
            read: Arc::new(watch::Sender::new(0)),
            answers: Arc::new(watch::Sender::new(false)),
        };
        let (read, answers) = (model.read.clone(), model.answers.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (read, mut answers) = (read.clone(), answers.subscribe());
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    let (mut line, mut length) = (String::new(), 0);
                    while stream.read_line(&mut line).await? > 2 {
                        if let Some(value) =
                            line.to_ascii_lowercase().strip_prefix("content-length:")
                        {
                            length = value.trim().parse().unwrap();
                        }
                        line.clear();
                    }
                    stream.read_exact(&mut vec![0; length]).await?;
                    read.send_modify(|read| *read += 1);
                    let _ = answers.wait_for(|answers| *answers).await;
                    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
                    let answer =
                        format!("{head}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}");
                    stream.write_all(answer.as_bytes()).await
                });
            }
        });
        model
    }
}

#[tokio::test]
async fn bodies_are_their_persons_until_the_model_answers() {
    const LONG: usize = 3 << 19;
    const ROOM: usize = 8 << 20;
    let silent = SilentModel::start().await;
    let room = Arc::new(ByteBudget::new(ROOM));
    let shared = Arc::new(RelayContext {
        record: Box::new(|_| Ok(())),
        ledger: Arc::default(),
        room: room.clone(),
        judging: UserSlots::new(4),
    });
    let url = format!("http://{}", silent.address);
    let entry = json!({ "url": url, "api": "anthropic", "allow_addresses": ["loopback"] });
    let registry =
        json!({ "agents": { "a": { "command": "/bin/a", "model": entry } } }).to_string();
    let mut registry = parse(registry.as_bytes(), "r").unwrap();
    let model = registry.agents.remove("a").unwrap().model.unwrap();
    // The status that an instance of its own gets for one long request.
    let mut instances = 0_u64;
    let mut status = |uid: u32| {
        instances += 1;
        let door = AgentSocket {
            agent: "a".into(),
            session: format!("{instances:016x}").into(),
            tools: AgentTools::default(),
            shared_tasks: false,
            max_bytes: None,
            max_bytes_place: Default::default(),
            max_tokens: None,
            flow: Default::default(),
            spent: AgentUsage::default(),
            lease: Default::default(),
        };
        let relay = Relay::new(
            &model,
            &BTreeMap::new(),
            Arc::new(door),
            uid,
            shared.clone(),
        )
        .unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        tokio::spawn(serve(Arc::new(relay), near));
        tokio::spawn(async move {
            let body =
                json!({ "max_tokens": 1, "system": "x".repeat(LONG), "messages": [] }).to_string();
            let head = "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
            let request = format!(
                "{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            // One that is refused early is not read whole.
            let _ = far.write_all(request.as_bytes()).await;
            let mut answer = Vec::new();
            let _ = far.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer)
                .split(' ')
                .nth(1)
                .map(str::to_owned)
        })
    };
    let read = |count: usize| {
        let mut read = silent.read.subscribe();
        async move { read.wait_for(|read| *read >= count).await.map(drop) }
    };
    let first = status(1);
    read(1).await.unwrap();
    assert!(
        room.queued() >= LONG,
        "{} while the model is silent",
        room.queued()
    );
    let mut others: Vec<_> = (0..7).map(|_| status(1)).collect();
    others.push(first);
    while others.iter().filter(|other| other.is_finished()).count() + *silent.read.borrow()
        < others.len()
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(room.queued() <= ROOM);
    }
    // Another person's goes out although all of the room is taken.
    let another = status(2);
    let before = *silent.read.borrow();
    read(before + 1).await.unwrap();
    silent.answers.send_replace(true);
    assert_eq!(another.await.unwrap().as_deref(), Some("200"));
    let mut statuses = Vec::new();
    for other in others {
        statuses.push(other.await.unwrap().unwrap_or_default());
    }
    assert!(
        statuses
            .iter()
            .all(|status| matches!(&**status, "200" | "503")),
        "{statuses:?}"
    );
    assert!(
        statuses.iter().any(|status| status == "503"),
        "{statuses:?}"
    );
    assert_eq!(room.queued(), 0);
}
