//! `otlp`: spans of the trail, at a collector that is not always there.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::thread;

use colibri_tests::{Place, modern_meta};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as OtlpValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;

/// Texts of arguments, of a client, of results: what no span may have.
const SECRETS: [&str; 4] = [
    "ghp_0123456789abcdef",
    "tell-nobody-this",
    "sk-ant-REDACTED",
    "e2e-client-name",
];

/// A collector that answers with these statuses in turn, and then with 200.
struct TestCollector {
    url: String,
    taken: Arc<Mutex<Vec<TakenRequest>>>,
}

/// The first line of a request, and its body.
type TakenRequest = (String, Vec<u8>);

impl TestCollector {
    fn start(statuses: &[&'static str]) -> TestCollector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let (kept, mut statuses) = (taken.clone(), Vec::from(statuses).into_iter());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let (mut first, mut length) = (String::new(), 0);
                    if reader.read_line(&mut first).unwrap_or(0) == 0 {
                        break;
                    }
                    loop {
                        let mut line = String::new();
                        reader.read_line(&mut line).unwrap();
                        let line = line.trim().to_ascii_lowercase();
                        if line.is_empty() {
                            break;
                        }
                        if let Some(value) = line.strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                    }
                    let mut body = vec![0; length];
                    reader.read_exact(&mut body).unwrap();
                    let status = statuses.next().unwrap_or("200 OK");
                    if status.starts_with("200") {
                        kept.lock().unwrap().push((first, body));
                    }
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                    (&stream).write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        TestCollector { url, taken }
    }

    fn spans(&self) -> Vec<Span> {
        let taken = self.taken.lock().unwrap();
        let of = |(line, body): &(String, Vec<u8>)| {
            assert!(line.starts_with("POST /v1/traces "), "{line}");
            for secret in SECRETS {
                assert!(
                    !body
                        .windows(secret.len())
                        .any(|part| part == secret.as_bytes()),
                    "{secret}"
                );
            }
            let request = ExportTraceServiceRequest::decode(&body[..]).unwrap();
            let resources = request.resource_spans.into_iter();
            resources
                .flat_map(|of| of.scope_spans)
                .flat_map(|of| of.spans)
                .collect::<Vec<_>>()
        };
        taken.iter().flat_map(of).collect()
    }
}

fn attributes(span: &Span) -> BTreeMap<&str, String> {
    let text = |value: &OtlpValue| match value {
        OtlpValue::StringValue(text) => text.clone(),
        OtlpValue::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let value = |value: &Option<_>| match value {
        Some(opentelemetry_proto::tonic::common::v1::AnyValue { value: Some(value) }) => {
            text(value)
        }
        _ => String::new(),
    };
    span.attributes
        .iter()
        .map(|one| (one.key.as_str(), value(&one.value)))
        .collect()
}

fn export(place: &Place, url: &str, more: &[&str]) -> Output {
    let mut words = vec!["otlp", "--endpoint", url, "--once"];
    words.extend(more);
    place.colibri_mcp(&words).output().unwrap()
}

#[test]
fn calls_are_spans_and_nothing_is_lost_while_the_collector_is_away() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.connect();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for number in 0..600 {
        let meta = modern_meta().replace("\"e2e\"", "\"e2e-client-name\"");
        let id = client.next_id();
        let tool = if number % 3 == 0 { "nothing" } else { "echo" };
        let text = SECRETS[number % 3];
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"fix__{tool}","arguments":{{"text":"{text}"}},"_meta":{{"traceparent":"{parent}",{meta}}}}}}}"#
        );
        client.send(line);
        client.answer(id);
    }
    // Nobody there: said, and the position does not move.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let ran = export(&place, &url, &["--all"]);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        !ran.status.success() && said.contains("nothing is lost"),
        "{said}"
    );
    assert!(!place.path("state/otlp.json").exists());
    // Away, slow to take, and then there.
    let collector = TestCollector::start(&[
        "503 Service Unavailable",
        "429 Too Many Requests",
        "502 Bad Gateway",
    ]);
    let ran = export(&place, &collector.url, &["--all", "--json"]);
    assert!(ran.status.success(), "{ran:?}");
    let spans = collector.spans();
    let calls: Vec<&Span> = spans
        .iter()
        .filter(|span| span.name.starts_with("tools/call"))
        .collect();
    assert_eq!(calls.len(), 600);
    let ids: std::collections::BTreeSet<&[u8]> =
        spans.iter().map(|span| &span.span_id[..]).collect();
    assert_eq!(ids.len(), spans.len());
    for span in &calls {
        let found = attributes(span);
        assert_eq!(colibri_text::hex(&span.trace_id), &parent[3..35]);
        assert_eq!(colibri_text::hex(&span.parent_span_id), &parent[36..52]);
        assert_eq!(found["mcp.method.name"], "tools/call");
        assert_eq!(found["gen_ai.operation.name"], "execute_tool");
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano && span.kind == 2);
        // Of one that there is not, a server that has not been started yet is known, and then not
        // even that.
        let is_failed = found["gen_ai.tool.name"].ends_with("nothing");
        assert_eq!(found.contains_key("error.type"), is_failed, "{found:?}");
        assert_eq!(
            span.status.as_ref().unwrap().code,
            if is_failed { 2 } else { 0 }
        );
    }
    // It goes on where it was.
    let again = TestCollector::start(&[]);
    assert!(export(&place, &again.url, &[]).status.success());
    assert!(
        again
            .spans()
            .iter()
            .all(|span| !span.name.starts_with("tools/call"))
    );
    daemon.modern().call("fix__echo", json!({}));
    assert!(export(&place, &again.url, &[]).status.success());
    assert_eq!(
        again
            .spans()
            .iter()
            .filter(|span| span.name == "tools/call echo")
            .count(),
        1
    );
    // What a collector refuses for good is dropped and counted; the next is not held up by it.
    daemon.modern().call("fix__echo", json!({}));
    let refusing = TestCollector::start(&["400 Bad Request"]);
    let ran = export(&place, &refusing.url, &["--json"]);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success() && said.contains("dropped: the collector refuses them"),
        "{ran:?}"
    );
    let facts: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(facts["dropped"].as_u64().unwrap() >= 1, "{facts}");
    // A position of another trail.
    let other = Place::of_fixture(&[], json!({}));
    let second = other.start(&[]);
    let position = place.path("state/otlp.json");
    let ran = export(
        &other,
        &refusing.url,
        &["--position", position.to_str().unwrap()],
    );
    assert_eq!(ran.status.code(), Some(65), "{ran:?}");
    second.stop();
    daemon.stop();
}
