//! The collector: requests of OTLP/HTTP (opentelemetry.io/docs/specs/otlp), protobuf, with its
//! rules for a second try.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use tokio::runtime::{Builder, Runtime};

use super::spans::attribute;
use crate::failure::CommandError;
use crate::interrupt;
use colibri_http::{AllowedTarget, ConnectionRules, HttpClient, HttpLimits, UrlOrigin};
use colibri_text::visible;

/// The time for one request.
const LIMIT: HttpLimits = HttpLimits {
    head: Duration::from_secs(10),
    silence: Duration::from_secs(10),
};
/// The longest answer that is read, bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// Between two tries: from, doubling, up to; a collector's `Retry-After` counts if it is longer.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// Tries where nobody waits for a collector to come back.
const TRIES_ONCE: u32 = 5;
/// The longest wait for a signal while a try is awaited.
const STEP: Duration = Duration::from_millis(100);

/// The outcome of an export.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The collector has it, but for so many that it rejected.
    Taken {
        /// Spans that it will not take, whenever they come.
        rejected: u64,
    },
    /// It will not take it, whenever it comes.
    Refused(String),
    /// It does not take it now.
    Away(String),
}

/// A collector behind a URL.
pub(super) struct Collector {
    endpoint: String,
    fields: Vec<(HeaderName, HeaderValue)>,
    client: HttpClient,
    runtime: Runtime,
    resource: Resource,
    /// True after it was said that the collector takes nothing.
    is_away: bool,
}

impl Collector {
    /// The collector at a URL. `OTEL_EXPORTER_OTLP_HEADERS` (`name=value,…`) has the header fields
    /// that it wants.
    pub(super) fn new(endpoint: &str, instance: &str) -> Result<Self, CommandError> {
        let usage = |why: &str| CommandError::Usage(format!("--endpoint {endpoint:?}: {why}"));
        let url: Uri = endpoint.parse().map_err(|_| usage("not a URL"))?;
        UrlOrigin::of(&url).map_err(|error| usage(&error.to_string()))?;
        if url.query().is_some() {
            return Err(usage("name it without a query: http://127.0.0.1:4318"));
        }
        let given = std::env::var("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        let wrong =
            || CommandError::Usage("OTEL_EXPORTER_OTLP_HEADERS is not name=value,…".to_owned());
        let mut fields = Vec::new();
        for pair in given.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
            let mut value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
            value.set_sensitive(true);
            fields.push((name.trim().parse().map_err(|_| wrong())?, value));
        }
        // Whoever names a collector means it, wherever it is.
        let allowed = ["loopback", "private", "link-local"].into_iter();
        let rules = ConnectionRules {
            allowed: allowed.filter_map(AllowedTarget::parse).collect(),
            ..ConnectionRules::default()
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            fields,
            client: HttpClient::new(rules),
            runtime: runtime
                .map_err(|error| CommandError::Machine(format!("no runtime: {error}")))?,
            resource: Resource {
                attributes: vec![
                    attribute("service.name", "colibri-mcp"),
                    attribute("service.version", env!("CARGO_PKG_VERSION")),
                    attribute("service.instance.id", instance),
                ],
                ..Resource::default()
            },
            is_away: false,
        })
    }

    /// Sends spans until the collector takes or refuses them; with `once` a few times, else until
    /// this is to end.
    pub(super) fn send_spans(&mut self, spans: Vec<Span>, once: bool) -> Outcome {
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(scope()),
                    spans,
                    ..ScopeSpans::default()
                }],
                ..ResourceSpans::default()
            }],
        };
        let body = Bytes::from(request.encode_to_vec());
        let (mut pause, mut tried) = (BACKOFF.0, 0);
        loop {
            tried += 1;
            let (outcome, retry_after) = self.post("/v1/traces", body.clone());
            let Outcome::Away(why) = outcome else {
                if std::mem::take(&mut self.is_away) {
                    eprintln!("colibri-mcp: the collector takes spans again");
                }
                return outcome;
            };
            if once && tried == TRIES_ONCE || interrupt::is_told() {
                return Outcome::Away(why);
            }
            if !std::mem::replace(&mut self.is_away, true) {
                eprintln!(
                    "colibri-mcp: the collector takes nothing now, spans wait in the trail: {}",
                    visible(&why)
                );
            }
            wait(retry_after.map_or(pause, |after| after.clamp(pause, BACKOFF.1)));
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    /// Sends metrics, once.
    pub(super) fn send_metrics(&mut self, metrics: Vec<Metric>) -> Outcome {
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope()),
                    metrics,
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        };
        self.post("/v1/metrics", request.encode_to_vec().into()).0
    }

    /// One request, and the pause that the collector asks for.
    fn post(&self, path: &str, body: Bytes) -> (Outcome, Option<Duration>) {
        let url = format!("{}{path}", self.endpoint);
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        match url.parse() {
            Ok(url) => *request.uri_mut() = url,
            Err(error) => return (Outcome::Refused(format!("{url}: {error}")), None),
        }
        let headers = request.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        headers.extend(self.fields.iter().cloned());
        self.runtime.block_on(async {
            let mut response = match self.client.request(request, LIMIT).await {
                Ok(response) => response,
                Err(error) => return (Outcome::Away(error.to_string()), None),
            };
            let (status, retry_after) = (response.status.as_u16(), response.retry_after());
            let answer = response.whole(MAX_ANSWER).await;
            let outcome = match status {
                200..=299 => Outcome::Taken {
                    rejected: answer.map_or(0, |answer| rejected(&answer)),
                },
                429 | 502..=504 => Outcome::Away(format!("{url} answered {status}")),
                _ => Outcome::Refused(format!("{url} answered {status}")),
            };
            (outcome, retry_after)
        })
    }
}

/// The spans that a collector rejected of those that it took.
fn rejected(answer: &[u8]) -> u64 {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    u64::try_from(partial.rejected_spans).unwrap_or(0)
}

/// Waits, unless this is to end.
fn wait(pause: Duration) {
    let until = Instant::now() + pause;
    while !interrupt::is_told() && Instant::now() < until {
        std::thread::sleep(STEP.min(until.saturating_duration_since(Instant::now())));
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "colibri-mcp".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        attributes: Vec::<KeyValue>::new(),
        dropped_attributes_count: 0,
    }
}
