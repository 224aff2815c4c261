//! The model relay beside the same model asked directly: time to the first byte of a stream, and
//! throughput of a long one. Ratios of one run: `cargo bench -p colibri-mcpd --bench model`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use colibri_mcpd::agents::Models as _;
use colibri_mcpd::model::ModelRelays;
use colibri_mcpd::registry::{parse, secrets::SecretStore};
use colibri_mcpd::relay::{AgentSocket, AgentUsage};
use colibri_policy::{AgentTools, Caller};

/// Streams of which the time to the first byte is taken.
const ROUNDS: usize = 1000;
/// Chunks of the long stream.
const LONG: usize = 2000;
const EVENT: &str = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"It was \"}}\n\n";
const END: &[u8] = b"0\r\n\r\n";

/// Answers requests on a connection with a stream: of one event, or of many where the request asks
/// for `long`.
fn model(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut held, mut part) = (Vec::new(), vec![0; 65536]);
    let block = EVENT.repeat(32 * 1024 / EVENT.len());
    loop {
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Ok(());
        }
        held.extend_from_slice(&part[..count]);
        if !held.ends_with(b"]}") {
            continue;
        }
        let is_long = held.windows(6).any(|window| window == b"\"long\"");
        held.clear();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let (text, times) = if is_long {
            (block.as_str(), LONG)
        } else {
            (EVENT, 1)
        };
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        for _ in 0..times {
            stream.write_all(chunk.as_bytes())?;
        }
        stream.write_all(END)?;
    }
}

/// Asks once: how long until the first byte, and in all; how many bytes came.
fn ask(stream: &mut (impl Read + Write), name: &str) -> (Duration, Duration, usize) {
    let body = format!("{{\"model\":\"{name}\",\"max_tokens\":100,\"messages\":[]}}");
    let request = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let begun = Instant::now();
    stream.write_all(request.as_bytes()).unwrap();
    let (mut part, mut count, mut tail) = (vec![0; 256 * 1024], 0, Vec::new());
    let mut first = None;
    loop {
        let read = stream.read(&mut part).unwrap();
        first.get_or_insert_with(|| begun.elapsed());
        count += read;
        tail.extend_from_slice(&part[read.saturating_sub(END.len())..read]);
        if read == 0 || tail.ends_with(END) {
            return (first.unwrap(), begun.elapsed(), count);
        }
        tail.drain(..tail.len().saturating_sub(END.len()));
    }
}

/// The median time to the first byte, and bytes a second of a long stream.
fn measure(stream: &mut (impl Read + Write)) -> (Duration, f64) {
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| ask(stream, "short").0).collect();
    times.sort();
    let rates = (0..5).map(|_| {
        let (_, time, bytes) = ask(stream, "long");
        bytes as f64 / time.as_secs_f64()
    });
    (times[ROUNDS / 2], rates.fold(0.0, f64::max))
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || model(stream));
        }
    });
    let place = tempfile::tempdir().unwrap();
    let entry = format!(
        r#"{{"agents":{{"a":{{"command":"/bin/true","model":{{"url":"http://{address}","api":"anthropic",
            "headers":{{"x-api-key":"sk-0123456789"}},"allow_addresses":["loopback"]}}}}}}}}"#
    );
    let entry = Arc::new(
        parse(entry.as_bytes(), "registry")
            .unwrap()
            .agents
            .remove("a")
            .unwrap(),
    );
    let door = Arc::new(AgentSocket {
        agent: "a".into(),
        session: "0123456789abcdef".into(),
        tools: AgentTools::default(),
        shared_tasks: false,
        max_bytes: None,
        max_bytes_place: Default::default(),
        max_tokens: None,
        flow: Default::default(),
        spent: AgentUsage::default(),
        lease: Default::default(),
    });
    let person = Caller {
        uid: 0,
        gid: 0,
        pid: None,
    };
    let secrets = Arc::new(SecretStore::beside(&place.path().join("registry")));
    let relays = ModelRelays::new(
        Box::new(|_| Ok(())),
        Arc::default(),
        Arc::default(),
        secrets,
    );
    let runtime = colibri_mcpd::run::runtime().unwrap();
    let _inside = runtime.enter();
    let socket = place.path().join("model.sock");
    let _open = relays.open(&socket, &entry, door, person).unwrap();
    let mut direct = TcpStream::connect(address).unwrap();
    direct.set_nodelay(true).unwrap();
    let mut relayed = UnixStream::connect(&socket).unwrap();
    for round in 1..=3 {
        let (first, rate) = measure(&mut direct);
        let (relayed_first, relayed_rate) = measure(&mut relayed);
        println!(
            "{round}: first byte {} us directly, {} us relayed (+{} us); {:.0} MB/s directly, {:.0} MB/s relayed ({:.2})",
            first.as_micros(),
            relayed_first.as_micros(),
            relayed_first.saturating_sub(first).as_micros(),
            rate / 1e6,
            relayed_rate / 1e6,
            relayed_rate / rate
        );
    }
}
