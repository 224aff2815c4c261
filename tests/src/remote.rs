//! Servers behind a URL: the HTTP of another daemon brought to a TCP port, and ones that answer
//! whatever a test says.

use std::io::{BufRead, BufReader, Write, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::Place;

/// A TCP port on loopback; what is behind it ends with the test's process.
pub struct Port {
    number: u16,
    connections: Arc<AtomicUsize>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Port {
    fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Port {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let port = Port {
            number: listener.local_addr().expect("its address").port(),
            connections: Arc::default(),
            open: Arc::default(),
        };
        let (connections, open) = (port.connections.clone(), port.open.clone());
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = stream.set_nodelay(true);
                connections.fetch_add(1, Ordering::SeqCst);
                lock(&open).extend(stream.try_clone());
                let serve = serve.clone();
                thread::spawn(move || serve(stream));
            }
        });
        port
    }

    /// A port that leads to a Unix socket; `is_legacy`: connections that begin with a modern
    /// request get 400.
    ///
    /// # Panics
    /// If there is no port.
    pub fn to(socket: &Path, is_legacy: bool) -> Port {
        let socket = socket.to_owned();
        Port::listen(move |mut stream| {
            if is_legacy && first_head(&stream).contains("mcp-method") {
                answer(
                    &mut stream,
                    "400 Bad Request",
                    "Connection: close\r\n",
                    "no session",
                );
                return;
            }
            let Ok(other) = UnixStream::connect(&socket) else {
                return;
            };
            let (Ok(mut from), Ok(mut to)) = (stream.try_clone(), other.try_clone()) else {
                return;
            };
            thread::spawn(move || {
                let _ = copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
            let (mut from, mut to) = (other, stream);
            let _ = copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        })
    }

    /// A port at which each request gets what `answer` writes; `false`: and the end of the
    /// connection.
    ///
    /// # Panics
    /// If there is no port.
    pub fn answering(
        answer: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Port {
        Port::listen(move |mut stream| {
            let Ok(reader) = stream.try_clone() else {
                return;
            };
            let mut reader = BufReader::new(reader);
            while let Some(request) = Request::read(&mut reader) {
                if !answer(&request, &mut stream) {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
            }
        })
    }

    /// A port at which each request is answered by TLS, with the certificate that is shown at the
    /// time of its connection.
    ///
    /// # Panics
    /// If there is no port.
    pub fn secure(
        shown: &Arc<Mutex<Arc<ServerConfig>>>,
        answer: impl Fn(&Request) -> Value + Send + Sync + 'static,
    ) -> Port {
        let shown = shown.clone();
        Port::listen(move |stream| {
            let Ok(connection) = ServerConnection::new(lock(&shown).clone()) else {
                return;
            };
            let mut stream = BufReader::new(StreamOwned::new(connection, stream));
            while let Some(request) = Request::read(&mut stream) {
                if !json_answer(stream.get_mut(), &answer(&request)) {
                    return;
                }
            }
        })
    }

    /// The URL of a path there.
    pub fn url(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.number)
    }

    /// An entry of a registry for what is at a path there, with further keys.
    ///
    /// # Panics
    /// If `more` is no object.
    pub fn entry(&self, path: &str, more: Value) -> Value {
        let mut entry = json!({ "url": self.url(path), "allow_addresses": ["loopback"] });
        let entry_keys = entry.as_object_mut().expect("an object");
        entry_keys.extend(more.as_object().expect("an object").clone());
        entry
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Ends all connections, without a word.
    pub fn cut(&self) {
        for stream in lock(&self.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A certificate authority, and what a server shows that has a certificate of it: for these names,
/// until then.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// # Panics
    /// If there are no keys.
    #[expect(
        clippy::new_without_default,
        reason = "an authority is made on purpose"
    )]
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Its own certificate.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for this name, which is its common name too, and its key, as PEM.
    ///
    /// # Panics
    /// If they cannot be made.
    pub fn certify(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// What a server of this name shows until the end of that year.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn shows(&self, name: &str, last_year: i32) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        params.not_after = date_time_ymd(last_year, 12, 31);
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                key.serialize_der().try_into().expect("a key"),
            );
        Arc::new(config.expect("a certificate of this key"))
    }
}

/// A request that came to [`Port::answering`].
#[derive(Debug)]
pub struct Request {
    /// The first line.
    pub line: String,
    /// The header fields, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub text: String,
    /// The body as JSON; null if it is none.
    pub body: Value,
}

impl Request {
    fn read(reader: &mut impl BufRead) -> Option<Request> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader
                .read_line(&mut line)
                .ok()
                .filter(|count| *count > 0)?;
            match line.trim_end() {
                "" => break,
                text => lines.push(text.to_owned()),
            }
        }
        let mut lines = lines.into_iter();
        let line = lines.next()?;
        let fields = lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        });
        let mut request = Request {
            line,
            fields: fields.collect(),
            text: String::new(),
            body: Value::Null,
        };
        let length = request
            .field("content-length")
            .and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        request.body = serde_json::from_slice(&body).unwrap_or_default();
        request.text = String::from_utf8_lossy(&body).into_owned();
        Some(request)
    }

    /// A header field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The method of its message.
    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// What a modern server with the tool `echo` answers; nothing where it is asked something else.
    pub fn usual(&self) -> Option<Value> {
        let result = match self.method() {
            "server/discover" => {
                json!({ "resultType": "complete", "supportedVersions": [crate::MODERN],
                "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "private" })
            }
            "tools/list" => json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
            _ => return None,
        };
        Some(json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result }))
    }

    /// The answer with this text.
    pub fn text(&self, text: &str) -> Value {
        let result =
            json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] });
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result })
    }
}

/// A place with one modern server `web` behind a URL that answers calls as told.
pub struct Far {
    /// Where its daemon is to be started.
    pub place: Place,
    /// The server.
    pub port: Port,
    calls: Arc<AtomicUsize>,
}

impl Far {
    /// `more` are further keys of its entry; `call` gets the number of a call, from 0.
    ///
    /// # Panics
    /// If there is no place or port.
    pub fn new(
        more: Value,
        call: impl Fn(usize, &Request, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Far {
        let calls: Arc<AtomicUsize> = Arc::default();
        let counted = calls.clone();
        let port = Port::answering(move |request, stream| match request.usual() {
            Some(usual) => json_answer(stream, &usual),
            None => call(counted.fetch_add(1, Ordering::SeqCst), request, stream),
        });
        let place = Place::new();
        place.registry(&json!({ "web": port.entry("/mcp", more) }));
        Far { place, port, calls }
    }

    /// How many calls it had.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// Answers with a status, further lines of the head and a body.
pub fn answer(stream: &mut impl Write, status: &str, head: &str, body: &str) -> bool {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{head}\r\n{body}");
    stream.write_all(text.as_bytes()).is_ok()
}

/// Answers with JSON.
pub fn json_answer(stream: &mut impl Write, message: &Value) -> bool {
    answer(
        stream,
        "200 OK",
        "Content-Type: application/json\r\n",
        &message.to_string(),
    )
}

/// The head of a connection's first request, which is left to be read.
fn first_head(stream: &TcpStream) -> String {
    let mut seen = vec![0; 16 * 1024];
    loop {
        let count = stream.peek(&mut seen).unwrap_or(0);
        let text = String::from_utf8_lossy(&seen[..count]).into_owned();
        if count == 0 || text.contains("\r\n\r\n") {
            return text;
        }
        thread::yield_now();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
