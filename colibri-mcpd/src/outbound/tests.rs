//! The client against peers that behave, and that do not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, Request};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::address::Allowed;
use super::*;

/// What each connection answers: each text to one request, nothing after the last, then the end.
struct Script(Mutex<Vec<Vec<String>>>, Arc<Mutex<Vec<String>>>);

impl Dial for Script {
    fn dial<'a>(&'a self, origin: &'a Origin) -> BoxFuture<'a, Result<Box<dyn Io>, Error>> {
        let mut connections = self.0.lock().unwrap();
        if connections.is_empty() {
            let host = origin.host.clone();
            let why = "refused".to_owned();
            return Box::pin(std::future::ready(Err(Error::Connect { host, why })));
        }
        let answers = connections.remove(0);
        let (ours, theirs) = duplex(1 << 20);
        tokio::spawn(serve(theirs, answers, self.1.clone()));
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

async fn serve(mut io: DuplexStream, answers: Vec<String>, asked: Arc<Mutex<Vec<String>>>) {
    for answer in answers {
        let head = head(&mut io).await;
        if head.is_empty() {
            return;
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        io.read_exact(&mut body).await.unwrap();
        asked.lock().unwrap().push(head);
        io.write_all(answer.as_bytes()).await.unwrap();
    }
}

fn scripted(connections: &[&[&str]]) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let script = connections
        .iter()
        .map(|answers| answers.iter().map(|&answer| answer.to_owned()).collect());
    let client = Client::over(Script(Mutex::new(script.collect()), asked.clone()));
    (client, asked)
}

fn post(url: &str) -> Request<Bytes> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header("authorization", "Bearer x");
    request.body(Bytes::from_static(b"{}")).unwrap()
}

const LIMITS: Limits = Limits {
    head: Duration::from_secs(20),
    silence: Duration::from_secs(20),
};

async fn body(client: &Client, url: &str) -> Result<(u16, String), Error> {
    let mut response = client.request(post(url), LIMITS).await?;
    let body = response.whole(1000).await?;
    Ok((response.status.as_u16(), String::from_utf8(body.to_vec()).unwrap()))
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request() {
    let (client, asked) = scripted(&[&[OK, OK, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nend"], &[OK]]);
    for expected in ["ok", "ok", "end", "ok"] {
        assert_eq!(
            body(&client, "http://h/mcp?a=1").await.unwrap(),
            (200, expected.to_owned())
        );
    }
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 4);
    assert!(asked[0].starts_with("POST /mcp?a=1 HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(
        asked[0].contains("accept-encoding: identity") && asked[0].contains("host: h\r\n"),
        "{}",
        asked[0]
    );
    let refused = body(&client, "http://elsewhere/").await.unwrap_err();
    assert!(!refused.was_sent(), "{refused}");
}

#[tokio::test]
async fn redirects_stay_within_the_origin() {
    let to =
        |status: u16, place: &str| format!("HTTP/1.1 {status} Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n");
    let (client, asked) = scripted(&[&[&to(307, "/b"), &to(308, "http://h/c"), OK]]);
    assert_eq!(body(&client, "http://h/a").await.unwrap(), (200, "ok".to_owned()));
    let paths: Vec<String> = asked.lock().unwrap().iter().map(|head| head[..7].to_owned()).collect();
    assert_eq!(paths, ["POST /a", "POST /b", "POST /c"]);
    for (status, place) in [
        (307, "http://other/"),
        (307, "https://h/"),
        (308, "http://h:81/"),
        (302, "/b"),
        (307, "//other/x"),
    ] {
        let (client, asked) = scripted(&[&[&to(status, place), OK], &[OK]]);
        let error = body(&client, "http://h/a").await.unwrap_err();
        assert!(error.to_string().contains("which is not followed"), "{place}: {error}");
        assert_eq!(asked.lock().unwrap().len(), 1, "{place}");
    }
    let round = to(307, "/a");
    let (client, asked) = scripted(&[&[round.as_str(); 9]]);
    let error = body(&client, "http://h/a").await.unwrap_err();
    assert!(error.to_string().contains("over and over"), "{error}");
    assert_eq!(asked.lock().unwrap().len(), 6);
}

#[tokio::test]
async fn answers_that_are_not_what_they_say_are_errors() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(300_000));
    let fields = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(200));
    let endless = format!("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{}", "x".repeat(5000));
    for (answer, why) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "whole answer"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            "whole answer",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
            "whole answer",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
            "gzip",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
            "whole answer",
        ),
        ("SSH-2.0-OpenSSH\r\n\r\n", "whole answer"),
        ("HTTP/1.1 20", "whole answer"),
        ("", "whole answer"),
        (&long, "whole answer"),
        (&fields, "whole answer"),
        (&endless, "1000 bytes"),
    ] {
        let (client, _) = scripted(&[&[answer]]);
        let error = body(&client, "http://h/").await.unwrap_err();
        assert!(
            error.to_string().contains(why) && error.was_sent(),
            "{answer:.60}: {error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_is_given_up() {
    struct Silent;
    impl Dial for Silent {
        fn dial<'a>(&'a self, _: &'a Origin) -> BoxFuture<'a, Result<Box<dyn Io>, Error>> {
            let (ours, theirs) = duplex(1 << 20);
            std::mem::forget(theirs);
            Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
        }
    }
    let error = body(&Client::over(Silent), "http://h/").await.unwrap_err();
    assert!(matches!(error, Error::Silent { .. }), "{error}");
    let (client, _) = scripted(&[&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", OK]]);
    let error = body(&client, "http://h/").await.unwrap_err();
    assert!(matches!(error, Error::Silent { .. }), "{error}");
}

fn loopback() -> Rules {
    Rules {
        allowed: vec![Allowed::parse("loopback").unwrap()],
        ..Rules::default()
    }
}

#[tokio::test]
async fn the_address_that_a_name_resolves_to_counts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "127.1", "0.0.0.0"] {
        let url = format!("http://{host}:{port}/");
        let error = body(&Client::new(Rules::default()), &url).await.unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{host}: {error}");
        assert!(error.is_permanent() && !error.was_sent());
    }
    let nobody = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(nobody.is_err());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let answered = body(&Client::new(loopback()), &format!("http://localhost:{port}/")).await;
    assert_eq!(answered.unwrap(), (200, "ok".to_owned()));
}

/// A TLS server with a certificate for `name`, and the file of its authority.
async fn secure(name: &str) -> (u16, tempfile::NamedTempFile) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()])
        .unwrap()
        .signed_by(&key, &authority)
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                head(&mut stream).await;
                stream.write_all(OK.as_bytes()).await.unwrap();
                let _ = stream.read_to_end(&mut Vec::new()).await;
            });
        }
    });
    (port, file)
}

#[tokio::test]
async fn a_certificate_is_believed_for_its_name_and_by_the_authorities_alone() {
    let (port, authority) = secure("localhost").await;
    let with = |file: Option<&tempfile::NamedTempFile>| {
        let authorities = file.map(|file| file.path().to_owned());
        Client::new(Rules {
            authorities,
            ..loopback()
        })
    };
    let url = format!("https://localhost:{port}/");
    assert_eq!(
        body(&with(Some(&authority)), &url).await.unwrap(),
        (200, "ok".to_owned())
    );
    let (_, other) = secure("localhost").await;
    let by_address = format!("https://127.0.0.1:{port}/");
    for (client, url) in [(with(Some(&other)), &url), (with(Some(&authority)), &by_address)] {
        let error = body(&client, url).await.unwrap_err();
        assert!(error.to_string().contains("TLS") && !error.was_sent(), "{error}");
    }
    let empty = tempfile::NamedTempFile::new().unwrap();
    let error = body(&with(Some(&empty)), &url).await.unwrap_err();
    assert!(
        error.is_permanent() && error.to_string().contains("no certificate"),
        "{error}"
    );
}

#[tokio::test]
async fn a_proxy_is_asked_for_each_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = asked.clone();
    tokio::spawn(async move {
        for answer in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 403 No\r\n\r\n"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let asked = head(&mut stream).await;
            told.lock().unwrap().push(asked);
            stream.write_all(answer.as_bytes()).await.unwrap();
            tokio::spawn(async move {
                head(&mut stream).await;
                let _ = stream.write_all(OK.as_bytes()).await;
                stream.read_to_end(&mut Vec::new()).await
            });
        }
    });
    // The rules are about servers: the operator named the proxy.
    let rules = Rules {
        proxy: Some(proxy.parse().unwrap()),
        ..Rules::default()
    };
    let client = Client::new(rules.clone());
    assert_eq!(
        body(&client, "http://docs.example/x").await.unwrap(),
        (200, "ok".to_owned())
    );
    let error = body(&Client::new(rules.clone()), "http://docs.example/x")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("403") && !error.was_sent(), "{error}");
    for own in [
        "127.0.0.1",
        "localhost",
        "LocalHost.",
        "x.localhost",
        "[::ffff:127.0.0.1]",
    ] {
        let error = body(&Client::new(rules.clone()), &format!("http://{own}/x")).await;
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{own}: {error}");
    }
    for odd in [
        "127.1",
        "2130706433",
        "0x7F000001",
        "a.0x7f",
        "0177.0.0.1",
        "127.0.0.1.",
        ".",
    ] {
        let error = body(&Client::new(rules.clone()), &format!("http://{odd}/x")).await;
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Url(_)), "{odd}: {error}");
    }
    assert!(asked.lock().unwrap()[0].starts_with("CONNECT docs.example:80 HTTP/1.1\r\n"));
}

fn session_over(client: Client) -> Link {
    connect(Endpoint {
        url: "http://h/mcp".parse().unwrap(),
        transport: Transport::Streamable,
        headers: Default::default(),
        client,
        authorizer: Arc::new(Anonymous),
        max_message: 4096,
        silence: Duration::from_secs(3600),
    })
}

/// What a session makes of these answers to one modern request: the lines it says, and the faults it tells.
async fn session(answer: &str) -> (String, Vec<Fault>) {
    let (client, _) = scripted(&[&[answer]]);
    let mut link = session_over(client);
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
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")
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
        (with("200 OK", json, &other), FaultKind::Invalid),
        (with("200 OK", json, "{"), FaultKind::Invalid),
        (
            with("400 Bad Request", json, &error.replace("-32000", "-32020")),
            FaultKind::Mismatched,
        ),
        (with("200 OK", "text/html", "<p>"), FaultKind::Invalid),
        (with("200 OK", json, &long), FaultKind::TooLong),
        (with("200 OK", events, &format!("data: {long}\n\n")), FaultKind::TooLong),
        (with("200 OK", events, "id: 1\n\n"), FaultKind::Lost),
        (
            with("500 Oops", "text/plain", "oops"),
            FaultKind::Status { is_servers: true },
        ),
        (
            with("404 Not Found", "text/plain", ""),
            FaultKind::Status { is_servers: false },
        ),
        (with("429 Slow", json, error), FaultKind::Busy(None)),
        (
            with("503 Busy\r\nRetry-After: 7", "text/plain", ""),
            FaultKind::Busy(Some(Duration::from_secs(7))),
        ),
        (with("401 Who", "text/plain", "who"), FaultKind::Denied),
        (
            with("307 Go\r\nLocation: http://other/", "text/plain", ""),
            FaultKind::Impossible,
        ),
        (String::new(), FaultKind::Lost),
    ] {
        let (said, faults) = session(&answer).await;
        let kinds: Vec<(Option<u64>, FaultKind)> = faults.iter().map(|fault| (fault.id, fault.kind)).collect();
        assert_eq!((said.as_str(), kinds), ("", vec![(Some(7), kind)]), "{answer:.200}");
    }
}

/// A legacy server that answers the GET of its stream after a while, and notes what it was asked.
struct Slow {
    after: Duration,
    stream: &'static str,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Dial for Slow {
    fn dial<'a>(&'a self, _: &'a Origin) -> BoxFuture<'a, Result<Box<dyn Io>, Error>> {
        let (ours, mut theirs) = duplex(1 << 20);
        let (after, stream, asked) = (self.after, self.stream, self.asked.clone());
        tokio::spawn(async move {
            loop {
                let head = head(&mut theirs).await;
                let Some(method) = head.split(' ').next().filter(|method| !method.is_empty()) else {
                    return;
                };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
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
                        let body =
                            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-11-25"}}}}"#);
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
        let mut link = session_over(Client::over(slow));
        let begun = tokio::time::Instant::now();
        for (line, has_answer) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#, true),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, false),
            (r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#, true),
        ] {
            link.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            if has_answer {
                assert_ne!(link.output.read(&mut [0; 4096]).await.unwrap(), 0, "{line}");
            }
        }
        assert_eq!(begun.elapsed().as_millis(), held, "{stream}");
        assert_eq!(
            *asked.lock().unwrap(),
            ["initialize", "notifications/initialized", "GET", "tools/list"]
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
    let mut link = session_over(Client::over(slow));
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
    let times = asked.lock().unwrap().iter().filter(|what| *what == "GET").count();
    assert!((50..=101).contains(&times), "{times}");
}

/// Takes connections and what is sent over them, and never answers.
struct Deaf(Arc<Mutex<Vec<DuplexStream>>>);

impl Dial for Deaf {
    fn dial<'a>(&'a self, _: &'a Origin) -> BoxFuture<'a, Result<Box<dyn Io>, Error>> {
        let (ours, theirs) = duplex(1 << 20);
        self.0.lock().unwrap().push(theirs);
        Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_notifications_is_no_flood_of_connections() {
    let connections: Arc<Mutex<Vec<DuplexStream>>> = Arc::default();
    let mut link = session_over(Client::over(Deaf(connections.clone())));
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
    let mut link = session_over(Client::over(Deaf(connections.clone())));
    let long = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{}\"}}\n",
        "x".repeat(8000)
    );
    link.input.write_all(long.repeat(4).as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(connections.lock().unwrap().len(), 4);
}

/// Answers each request with this head, and as much of a body as is taken; counts what that is.
struct Endless(&'static str, Arc<Mutex<Vec<usize>>>);

impl Dial for Endless {
    fn dial<'a>(&'a self, _: &'a Origin) -> BoxFuture<'a, Result<Box<dyn Io>, Error>> {
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
            url: "http://h/mcp".parse().unwrap(),
            transport: Transport::Streamable,
            headers: Default::default(),
            client: Client::over(Endless(answer, taken.clone())),
            authorizer: Arc::new(Anonymous),
            max_message: 4 << 20,
            silence: Duration::from_secs(3600),
        });
        for id in 0..20 {
            let request = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\"}}\n");
            link.input.write_all(request.as_bytes()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let taken = taken.lock().unwrap();
        let whole = taken.iter().filter(|taken| **taken == 1 << 20).count();
        assert_eq!((taken.len(), whole), (20, 4), "{answer}");
        assert!(taken.iter().sum::<usize>() < (4 << 20) + 16 * 200_000, "{taken:?}");
    }
}

#[tokio::test]
async fn a_name_server_that_does_not_answer_takes_few_threads() {
    static WAITING: AtomicUsize = AtomicUsize::new(0);
    static OVER: AtomicBool = AtomicBool::new(false);
    let look_up = |_: &str, _: u16| {
        WAITING.fetch_add(1, Ordering::SeqCst);
        while !OVER.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Vec::new())
    };
    let clients: Vec<Client> = (0..10)
        .map(|_| Client::over(Dialer::over(Rules::default(), look_up)))
        .collect();
    let asked = |client: &Client| {
        let client = client.clone();
        tokio::spawn(async move { body(&client, "http://slow.example/").await })
    };
    let begun: Vec<_> = (0..5).flat_map(|_| clients.iter().map(asked)).collect();
    while WAITING.load(Ordering::SeqCst) < 8 {
        tokio::task::yield_now().await;
    }
    // Who gives up leaves the thread behind, and its room with it.
    begun.iter().for_each(|asked| asked.abort());
    let again: Vec<_> = clients.iter().map(asked).collect();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(WAITING.load(Ordering::SeqCst), 8);
    OVER.store(true, Ordering::SeqCst);
    for asked in again {
        let error = asked.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("the name has no address"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_servers_calls_take_so_many_descriptors_and_no_more() {
    let connections: Arc<Mutex<Vec<DuplexStream>>> = Arc::default();
    let mut link = session_over(Client::over(Deaf(connections.clone())));
    let requests = (0..700).map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\"}}\n"));
    let requests: String = requests.collect();
    link.input.write_all(requests.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(connections.lock().unwrap().len(), 512);
    // Whose connection ends makes room.
    connections.lock().unwrap().drain(..100);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(connections.lock().unwrap().len(), 512);
}
