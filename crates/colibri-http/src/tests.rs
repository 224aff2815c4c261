//! The client against peers that follow the protocol, and peers that do not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, Request};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::address::AllowedTarget;
use super::*;

/// The responses on each connection: one text per request. After the last one the connection ends.
struct Script(Mutex<Vec<Vec<String>>>, Arc<Mutex<Vec<String>>>);

impl Dial for Script {
    fn dial<'a>(&'a self, origin: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
        let mut connections = self.0.lock().unwrap();
        if connections.is_empty() {
            let host = origin.host.clone();
            let why = "refused".to_owned();
            return Box::pin(std::future::ready(Err(HttpError::Connect { host, why })));
        }
        let answers = connections.remove(0);
        let (ours, theirs) = duplex(1 << 20);
        tokio::spawn(serve(theirs, answers, self.1.clone()));
        Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
    }
}

/// The head of a request; empty if none comes.
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
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        io.read_exact(&mut body).await.unwrap();
        asked.lock().unwrap().push(head);
        io.write_all(answer.as_bytes()).await.unwrap();
    }
}

fn scripted(connections: &[&[&str]]) -> (HttpClient, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let script = connections
        .iter()
        .map(|answers| answers.iter().map(|&answer| answer.to_owned()).collect());
    let client = HttpClient::over(Script(Mutex::new(script.collect()), asked.clone()));
    (client, asked)
}

fn post(url: &str) -> Request<Bytes> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header("authorization", "Bearer x");
    request.body(Bytes::from_static(b"{}")).unwrap()
}

const LIMITS: HttpLimits = HttpLimits {
    head: Duration::from_secs(20),
    silence: Duration::from_secs(20),
};

async fn body(client: &HttpClient, url: &str) -> Result<(u16, String), HttpError> {
    let mut response = client.request(post(url), LIMITS).await?;
    let body = response.whole(1000).await?;
    Ok((
        response.status.as_u16(),
        String::from_utf8(body.to_vec()).unwrap(),
    ))
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request() {
    let (client, asked) = scripted(&[
        &[OK, OK, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nend"],
        &[OK],
    ]);
    for expected in ["ok", "ok", "end", "ok"] {
        assert_eq!(
            body(&client, "http://h/mcp?a=1").await.unwrap(),
            (200, expected.to_owned())
        );
    }
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 4);
    assert!(
        asked[0].starts_with("POST /mcp?a=1 HTTP/1.1\r\n"),
        "{}",
        asked[0]
    );
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
    let to = |status: u16, place: &str| {
        format!("HTTP/1.1 {status} Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n")
    };
    let (client, asked) = scripted(&[&[&to(307, "/b"), &to(308, "http://h/c"), OK]]);
    assert_eq!(
        body(&client, "http://h/a").await.unwrap(),
        (200, "ok".to_owned())
    );
    let paths: Vec<String> = asked
        .lock()
        .unwrap()
        .iter()
        .map(|head| head[..7].to_owned())
        .collect();
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
        assert!(
            error.to_string().contains("which is not followed"),
            "{place}: {error}"
        );
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
    let endless = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{}",
        "x".repeat(5000)
    );
    for (answer, why) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
            "whole answer",
        ),
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
        fn dial<'a>(&'a self, _: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
            let (ours, theirs) = duplex(1 << 20);
            std::mem::forget(theirs);
            Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
        }
    }
    let error = body(&HttpClient::over(Silent), "http://h/")
        .await
        .unwrap_err();
    assert!(matches!(error, HttpError::Silent { .. }), "{error}");
    let (client, _) = scripted(&[&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", OK]]);
    let error = body(&client, "http://h/").await.unwrap_err();
    assert!(matches!(error, HttpError::Silent { .. }), "{error}");
}

fn loopback() -> ConnectionRules {
    ConnectionRules {
        allowed: vec![AllowedTarget::parse("loopback").unwrap()],
        ..ConnectionRules::default()
    }
}

#[tokio::test]
async fn the_address_that_a_name_resolves_to_counts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in [
        "127.0.0.1",
        "localhost",
        "[::ffff:127.0.0.1]",
        "127.1",
        "0.0.0.0",
    ] {
        let url = format!("http://{host}:{port}/");
        let error = body(&HttpClient::new(ConnectionRules::default()), &url)
            .await
            .unwrap_err();
        assert!(
            matches!(error, HttpError::Address { .. }),
            "{host}: {error}"
        );
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
    let answered = body(
        &HttpClient::new(loopback()),
        &format!("http://localhost:{port}/"),
    )
    .await;
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
        HttpClient::new(ConnectionRules {
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
    for (client, url) in [
        (with(Some(&other)), &url),
        (with(Some(&authority)), &by_address),
    ] {
        let error = body(&client, url).await.unwrap_err();
        assert!(
            error.to_string().contains("TLS") && !error.was_sent(),
            "{error}"
        );
    }
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at_plain = format!("https://{}/", plain.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        stream.read_to_end(&mut Vec::new()).await
    });
    let error = body(&with(Some(&authority)), &at_plain).await.unwrap_err();
    assert!(
        error.to_string().contains("no TLS") && !error.was_sent(),
        "{error}"
    );
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
    // The rules apply to servers. The operator chose the proxy.
    let rules = ConnectionRules {
        proxy: Some(proxy.parse().unwrap()),
        ..ConnectionRules::default()
    };
    let client = HttpClient::new(rules.clone());
    assert_eq!(
        body(&client, "http://docs.example/x").await.unwrap(),
        (200, "ok".to_owned())
    );
    let error = body(&HttpClient::new(rules.clone()), "http://docs.example/x")
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("403") && !error.was_sent(),
        "{error}"
    );
    for own in [
        "127.0.0.1",
        "localhost",
        "LocalHost.",
        "x.localhost",
        "[::ffff:127.0.0.1]",
    ] {
        let error = body(&HttpClient::new(rules.clone()), &format!("http://{own}/x")).await;
        let error = error.unwrap_err();
        assert!(matches!(error, HttpError::Address { .. }), "{own}: {error}");
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
        let error = body(&HttpClient::new(rules.clone()), &format!("http://{odd}/x")).await;
        let error = error.unwrap_err();
        assert!(matches!(error, HttpError::Url(_)), "{odd}: {error}");
    }
    assert!(asked.lock().unwrap()[0].starts_with("CONNECT docs.example:80 HTTP/1.1\r\n"));
    // The proxy is gone by now; the error is about the proxy and not about the server.
    let error = body(&HttpClient::new(rules), "http://docs.example/x")
        .await
        .unwrap_err();
    let said = format!("cannot connect to docs.example: the proxy {proxy}: ");
    assert!(
        error.to_string().starts_with(&said) && !error.was_sent(),
        "{error}"
    );
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
    let clients: Vec<HttpClient> = (0..10)
        .map(|_| HttpClient::over(Dialer::over(ConnectionRules::default(), look_up)))
        .collect();
    let asked = |client: &HttpClient| {
        let client = client.clone();
        tokio::spawn(async move { body(&client, "http://slow.example/").await })
    };
    let begun: Vec<_> = (0..5).flat_map(|_| clients.iter().map(asked)).collect();
    while WAITING.load(Ordering::SeqCst) < 8 {
        tokio::task::yield_now().await;
    }
    // A caller that gives up leaves the thread running, with its permits.
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
