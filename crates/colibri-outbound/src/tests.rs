//! Sessions with endpoints that behave, and that do not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use colibri_http::{BoxFuture, Dial, HttpClient, HttpError, Io, UrlOrigin};

/// Answers the first request of the first connection with this; there is no other connection.
struct Says(Mutex<Option<String>>);

impl Dial for Says {
    fn dial<'a>(&'a self, origin: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
        let Some(answer) = self.0.lock().unwrap().take() else {
            let host = origin.host.clone();
            let why = "refused".to_owned();
            return Box::pin(std::future::ready(Err(HttpError::Connect { host, why })));
        };
        let (ours, mut theirs) = duplex(1 << 20);
        tokio::spawn(async move {
            let head = head(&mut theirs).await;
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            theirs.read_exact(&mut body).await.unwrap();
            theirs.write_all(answer.as_bytes()).await.unwrap();
        });
        Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
    }
}

/// The head of a request; nothing if none comes.
async fn head(io: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match io.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return String::new(),
        }
    }
    String::from_utf8(head).unwrap()
}

fn endpoint(client: HttpClient) -> Endpoint {
    Endpoint {
        url: "http://h/mcp".parse().unwrap(),
        transport: EndpointTransport::Streamable,
        headers: Default::default(),
        client,
        authorizer: Arc::new(Anonymous),
        max_message: 4096,
        silence: Duration::from_secs(3600),
    }
}

fn session_over(client: HttpClient) -> LegacyLink {
    connect(endpoint(client))
}

/// The result of a session for these answers to one modern request: the lines it yields, and the
/// faults it reports.
async fn session(answer: &str) -> (String, Vec<SendError>) {
    let mut link = session_over(HttpClient::over(Says(Mutex::new(Some(answer.to_owned())))));
    let request = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":{
        "io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let request = request.replace('\n', " ") + "\n";
    link.input.write_all(request.as_bytes()).await.unwrap();
    let mut said = vec![0; 8192];
    let mut faults = Vec::new();
    let length = tokio::select! {
        length = link.output.read(&mut said) => length.unwrap(),
        fault = link.faults.recv() => {
            faults.extend(fault);
            0
        }
    };
    drop(link.input);
    link.ended.await.unwrap();
    said.truncate(length);
    link.output.read_to_end(&mut said).await.unwrap();
    while let Ok(fault) = link.faults.try_recv() {
        faults.push(fault);
    }
    (String::from_utf8(said).unwrap(), faults)
}

#[tokio::test(start_paused = true)]
async fn a_session_says_an_answer_or_why_there_is_none() {
    let with = |status: &str, kind: &str, body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let (json, events) = ("application/json; charset=utf-8", "text/event-stream");
    let result = r#"{"jsonrpc":"2.0","id":7,"result":{"big":12345678901234567890,"x":1e400}}"#;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
    let spread = result.replace(',', ",\r\n  ");
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no","data":1.0}}"#;
    for (answer, said) in [
        (with("200 OK", json, result), format!("{result}\n")),
        (
            with("200 OK", json, &spread),
            format!("{}\n", result.replace(',', ",    ")),
        ),
        (
            with(
                "200 OK",
                events,
                &format!("id: 1\ndata:\n\ndata: {progress}\n\ndata: {result}\n\n"),
            ),
            format!("{progress}\n{result}\n"),
        ),
        (
            with("404 Not Found", json, &result.replace("result", "error")),
            format!("{}\n", result.replace("result", "error")),
        ),
        (
            with("400 Bad Request", json, error),
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32000,\"message\":\"no\",\"data\":1.0}}\n".to_owned(),
        ),
    ] {
        assert_eq!(session(&answer).await, (said, Vec::new()), "{answer}");
    }
    let other = result.replace(":7", ":8");
    let long = "x".repeat(5000);
    for (answer, kind) in [
        (with("200 OK", json, &other), SendErrorKind::Invalid),
        (with("200 OK", json, "{"), SendErrorKind::Invalid),
        (
            with("400 Bad Request", json, &error.replace("-32000", "-32020")),
            SendErrorKind::Mismatched,
        ),
        (with("200 OK", "text/html", "<p>"), SendErrorKind::Invalid),
        (with("200 OK", json, &long), SendErrorKind::TooLong),
        (
            with("200 OK", events, &format!("data: {long}\n\n")),
            SendErrorKind::TooLong,
        ),
        (with("200 OK", events, "id: 1\n\n"), SendErrorKind::Lost),
        (
            with("500 Oops", "text/plain", "oops"),
            SendErrorKind::Failed,
        ),
        (
            with("404 Not Found", "text/plain", ""),
            SendErrorKind::Status,
        ),
        (
            with("404 Not Found", "text/html", &"<p>".repeat(200)),
            SendErrorKind::Status,
        ),
        (
            with("502 Bad Gateway", "text/plain", ""),
            SendErrorKind::Failed,
        ),
        (
            with("408 Request Timeout", "text/plain", ""),
            SendErrorKind::Failed,
        ),
        (
            with("504 Gateway Timeout", "text/plain", ""),
            SendErrorKind::Failed,
        ),
        (
            with("501 Not Implemented", "text/plain", ""),
            SendErrorKind::Status,
        ),
        (with("429 Slow", json, error), SendErrorKind::Busy(None)),
        (
            with("503 Busy\r\nRetry-After: 7", "text/plain", ""),
            SendErrorKind::Busy(Some(Duration::from_secs(7))),
        ),
        (with("401 Who", "text/plain", "who"), SendErrorKind::Denied),
        (
            with("307 Go\r\nLocation: http://other/", "text/plain", ""),
            SendErrorKind::Impossible,
        ),
        (String::new(), SendErrorKind::Lost),
    ] {
        let (said, faults) = session(&answer).await;
        let kinds: Vec<(Option<u64>, SendErrorKind)> =
            faults.iter().map(|fault| (fault.id, fault.kind)).collect();
        assert_eq!(
            (said.as_str(), kinds),
            ("", vec![(Some(7), kind)]),
            "{answer:.200}"
        );
        // As summaries show it, which are cut.
        let summary: String = faults[0].message.chars().take(120).collect();
        let hints = summary.contains("\"type\": \"sse\"");
        assert_eq!(hints, answer.contains("404 Not Found"), "{faults:?}");
    }
}

/// A legacy server that answers the GET of its stream after a while, and notes what it was asked.
struct Slow {
    after: Duration,
    stream: &'static str,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Dial for Slow {
    fn dial<'a>(&'a self, _: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
        let (ours, mut theirs) = duplex(1 << 20);
        let (after, stream, asked) = (self.after, self.stream, self.asked.clone());
        tokio::spawn(async move {
            loop {
                let head = head(&mut theirs).await;
                let Some(method) = head.split(' ').next().filter(|method| !method.is_empty())
                else {
                    return;
                };
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
                theirs.read_exact(&mut body).await.unwrap();
                let said: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
                let what = said["method"].as_str().unwrap_or(method).to_owned();
                asked.lock().unwrap().push(what);
                let answer = match (method, said["id"].as_u64()) {
                    ("GET", _) => {
                        tokio::time::sleep(after).await;
                        stream.to_owned()
                    }
                    (_, Some(id)) => {
                        let body = format!(
                            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-11-25"}}}}"#
                        );
                        let length = body.len();
                        format!(
                            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
                        )
                    }
                    _ => "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
                };
                theirs.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_the_handshake_of_a_legacy_server_waits_for_its_stream() {
    let events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    let none = "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n";
    for (stream, after, held) in [(events, 900, 900), (none, 900, 900), ("", 600_000, 1000)] {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let slow = Slow {
            after: Duration::from_millis(after),
            stream,
            asked: asked.clone(),
        };
        let mut link = session_over(HttpClient::over(slow));
        let begun = tokio::time::Instant::now();
        for (line, has_answer) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
                true,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                false,
            ),
            (r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#, true),
        ] {
            link.input
                .write_all(format!("{line}\n").as_bytes())
                .await
                .unwrap();
            if has_answer {
                assert_ne!(link.output.read(&mut [0; 4096]).await.unwrap(), 0, "{line}");
            }
        }
        assert_eq!(begun.elapsed().as_millis(), held, "{stream}");
        assert_eq!(
            *asked.lock().unwrap(),
            [
                "initialize",
                "notifications/initialized",
                "GET",
                "tools/list"
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_always_ends_at_once_is_not_asked_for_without_a_pause() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let slow = Slow {
        after: Duration::ZERO,
        // One event, and the end: this is as much as there is.
        stream: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 24\r\n\r\nid: 1\nretry: 0\ndata: 1\n\n",
        asked: asked.clone(),
    };
    let mut link = session_over(HttpClient::over(slow));
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    ];
    link.input
        .write_all((lines.join("\n") + "\n").as_bytes())
        .await
        .unwrap();
    let mut read = vec![0; 1 << 16];
    let _ = tokio::time::timeout(Duration::from_secs(10), async {
        while link.output.read(&mut read).await.unwrap() > 0 {}
    })
    .await;
    let times = asked
        .lock()
        .unwrap()
        .iter()
        .filter(|what| *what == "GET")
        .count();
    assert!((50..=101).contains(&times), "{times}");
}

/// Takes connections and what is sent over them, and never answers.
struct Deaf(Arc<Mutex<Vec<DuplexStream>>>);

impl Dial for Deaf {
    fn dial<'a>(&'a self, _: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
        let (ours, theirs) = duplex(1 << 20);
        self.0.lock().unwrap().push(theirs);
        Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_notifications_is_no_flood_of_connections() {
    let connections: Arc<Mutex<Vec<DuplexStream>>> = Arc::default();
    let mut link = session_over(HttpClient::over(Deaf(connections.clone())));
    let lines = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n".repeat(600);
    let cancelled = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n";
    let lines = lines + &cancelled.repeat(300);
    link.input.write_all(lines.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(connections.lock().unwrap().len(), 256);
    // One that is never taken is given up, and others follow.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(connections.lock().unwrap().len(), 512);
    // Those that are long take the room that they need.
    let connections: Arc<Mutex<Vec<DuplexStream>>> = Arc::default();
    let mut link = session_over(HttpClient::over(Deaf(connections.clone())));
    let long = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{}\"}}\n",
        "x".repeat(8000)
    );
    link.input
        .write_all(long.repeat(4).as_bytes())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(connections.lock().unwrap().len(), 4);
}

/// Answers each request with this head, and as much of a body as is taken; counts what that is.
struct Endless(&'static str, Arc<Mutex<Vec<usize>>>);

impl Dial for Endless {
    fn dial<'a>(&'a self, _: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
        let (ours, mut theirs) = duplex(4096);
        let (answer, taken) = (self.0, self.1.clone());
        let at = {
            let mut taken = taken.lock().unwrap();
            taken.push(0);
            taken.len() - 1
        };
        tokio::spawn(async move {
            head(&mut theirs).await;
            theirs.write_all(answer.as_bytes()).await.unwrap();
            while theirs.write_all(&[b'x'; 1024]).await.is_ok() {
                taken.lock().unwrap()[at] += 1024;
                if taken.lock().unwrap()[at] == 1 << 20 {
                    std::future::pending::<()>().await;
                }
            }
        });
        Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
    }
}

#[tokio::test(start_paused = true)]
async fn many_long_answers_at_once_are_not_all_held() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ",
    ] {
        let taken: Arc<Mutex<Vec<usize>>> = Arc::default();
        let mut link = connect(Endpoint {
            max_message: 4 << 20,
            ..endpoint(HttpClient::over(Endless(answer, taken.clone())))
        });
        for id in 0..20 {
            let request =
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\"}}\n");
            link.input.write_all(request.as_bytes()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let taken = taken.lock().unwrap();
        let whole = taken.iter().filter(|taken| **taken == 1 << 20).count();
        assert_eq!((taken.len(), whole), (20, 4), "{answer}");
        assert!(
            taken.iter().sum::<usize>() < (4 << 20) + 16 * 200_000,
            "{taken:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn one_servers_calls_take_so_many_descriptors_and_no_more() {
    let connections: Arc<Mutex<Vec<DuplexStream>>> = Arc::default();
    let mut link = session_over(HttpClient::over(Deaf(connections.clone())));
    let requests = (0..700)
        .map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\"}}\n"));
    let requests: String = requests.collect();
    link.input.write_all(requests.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(connections.lock().unwrap().len(), 512);
    // Whose connection ends makes room.
    connections.lock().unwrap().drain(..100);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(connections.lock().unwrap().len(), 512);
}
