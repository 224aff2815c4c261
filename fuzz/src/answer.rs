//! What a server behind a URL answers, whatever it is: each request of a session comes to an answer
//! in one line or to one fault, never to both, and what is relayed is one message a line.

use std::sync::Arc;
use std::time::Duration;

use colibri_http::{BoxFuture, Dial, HttpClient, HttpError, Io, UrlOrigin};
use colibri_outbound::{Anonymous, Endpoint, EndpointTransport, connect};
use colibri_wire::{Envelope, EnvelopeKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

/// Answers the first connection with these bytes, and no other.
struct Bytes(std::sync::Mutex<Option<Vec<u8>>>);

impl Dial for Bytes {
    fn dial<'a>(&'a self, origin: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
        let Some(bytes) = self.0.lock().expect("a lock").take() else {
            let (host, why) = (origin.host.clone(), "no more".to_owned());
            return Box::pin(std::future::ready(Err(HttpError::Connect { host, why })));
        };
        let (ours, mut theirs) = duplex(1 << 20);
        tokio::spawn(async move {
            // Whoever answers before it is asked is refused for that alone.
            let _ = theirs.read(&mut [0; 4096]).await;
            let _ = theirs.write_all(&bytes).await;
        });
        Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
    }
}

const MODERN: &str = concat!(
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":"#,
    r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
    "\n"
);
const LEGACY: &str = "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"initialize\",\"params\":{}}\n";

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else {
        return;
    };
    super::to_its_end(async {
        let (transport, asked) = match first % 3 {
            0 => (EndpointTransport::Streamable, MODERN),
            1 => (EndpointTransport::Streamable, LEGACY),
            _ => (EndpointTransport::Events, LEGACY),
        };
        let link = connect(Endpoint {
            url: "http://h/mcp".parse().expect("a URL"),
            transport,
            headers: Default::default(),
            client: HttpClient::over(Bytes(std::sync::Mutex::new(Some(bytes.to_vec())))),
            authorizer: Arc::new(Anonymous),
            max_message: 64 * 1024,
            silence: Duration::from_secs(5),
        });
        let (mut input, mut output, mut faults) = (link.input, link.output, link.faults);
        input
            .write_all(asked.as_bytes())
            .await
            .expect("it takes a request");
        let mut said = Vec::new();
        let _ =
            tokio::time::timeout(Duration::from_secs(1000), output.read_to_end(&mut said)).await;
        let (mut answers, mut faulted) = (0, 0);
        while let Ok(fault) = faults.try_recv() {
            faulted += usize::from(fault.id == Some(7));
            assert!(
                fault.message.len() < 4096 && !fault.message.contains(|c: char| c.is_control())
            );
        }
        assert!(said.is_empty() || said.ends_with(b"\n"));
        for line in said
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            if let Ok(EnvelopeKind::Answer { id: Some(id), .. }) =
                Envelope::parse(line).map(|envelope| envelope.kind)
            {
                answers += usize::from(id.as_u64() == Some(7));
            }
        }
        if transport == EndpointTransport::Streamable {
            assert!(
                faulted <= 1 && (faulted == 0 || answers == 0),
                "{answers} answers, {faulted} faults"
            );
            assert!(faulted == 1 || !said.is_empty());
        }
        drop(input);
        let _ = tokio::time::timeout(Duration::from_secs(1000), link.ended).await;
    });
}
