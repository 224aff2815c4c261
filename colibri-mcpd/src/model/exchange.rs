//! One request and its answer: judged, reserved, recorded, sent, counted.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use hyper::{StatusCode, Uri};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use super::budget::{TokenBudget, TokenReservation};
use super::mask::{Mask, values_of};
use super::wire::{BodyRoom, MAX_BODY, ModelWire, ResponseHead, no_room};
use crate::registry::ModelSpec;
use crate::relay::AgentSocket;
use colibri_api::{CostDay, CostSum};
use colibri_http::{HttpClient, HttpError, HttpLimits, ResponseStream};
use colibri_model::{
    ANSWER_FIELDS, Meter, ModelApi, ModelRefusal, ModelRequest, ModelRequestKind, OutgoingRequest,
    TokenCounts, fits, judge_request,
};
use colibri_peer::{ByteBudget, Outbox, Tenant};
use colibri_policy::UserSlots;
use colibri_registry::sha256_hex;
use colibri_store::cost_ledger::{CostLedger, CostLine, Payer};
use colibri_text::brief;
use colibri_trail::TrailEvent;

/// The longest silence of the model: models think.
const SILENCE: Duration = Duration::from_secs(600);
/// The number of times that a request is sent again because a reused connection ended before a byte
/// of it was sent.
const MAX_UNSENT: u32 = 3;
/// The most bytes of an answer.
const MAX_ANSWER: u64 = 128 << 20;
/// The most long bodies of one agent that are in memory at a time, until the model answers.
const MAX_OWN_LARGE: usize = 4;
/// Longer bodies are judged where they keep nobody waiting.
const JUDGED_ASIDE: usize = 64 * 1024;
/// The most refusals of one agent that are recorded and logged: whoever asks over and over fills no
/// disk.
const MAX_REFUSALS: u64 = 1000;

/// Records events; an error is the reason for which one was not recorded.
pub type RecordEvent = dyn Fn(TrailEvent<'_>) -> anyhow::Result<()> + Send + Sync;

/// The parts that all relays share.
pub(super) struct RelayContext {
    pub(super) record: Box<RecordEvent>,
    pub(super) ledger: Arc<CostLedger>,
    /// Room for bodies, from their first byte until the model answers.
    pub(super) room: Arc<ByteBudget>,
    /// Slots for checking long bodies.
    pub(super) judging: UserSlots,
}

/// The relay of one instance of an agent.
pub(super) struct Relay {
    pub(super) door: Arc<AgentSocket>,
    model: Arc<ModelSpec>,
    /// The entry's headers, sensitive.
    headers: HeaderMap,
    /// The secrets that no answer may show.
    hidden: Vec<SecretString>,
    client: HttpClient,
    budget: Arc<TokenBudget>,
    uid: u32,
    shared: Arc<RelayContext>,
    large: Semaphore,
    requests: AtomicU64,
    refusals: AtomicU64,
}

impl Relay {
    /// A relay to this model, with these headers.
    ///
    /// # Errors
    /// A header cannot be sent.
    pub(super) fn new(
        model: &ModelSpec,
        headers: &BTreeMap<String, SecretString>,
        door: Arc<AgentSocket>,
        uid: u32,
        shared: Arc<RelayContext>,
    ) -> anyhow::Result<Relay> {
        let mut fields = HeaderMap::new();
        for (name, value) in headers {
            let field: HeaderName = name
                .parse()
                .map_err(|_| anyhow!("the header {name} has no legal name"))?;
            let mut value = HeaderValue::from_str(
                value.expose_secret().trim_end_matches(['\r', '\n']),
            )
            .map_err(|_| {
                anyhow!(
                    "the value of the header {name} cannot be sent: it is to be printable ASCII"
                )
            })?;
            value.set_sensitive(true);
            fields.insert(field, value);
        }
        Ok(Relay {
            hidden: headers
                .iter()
                .filter(|(name, _)| model.is_hidden(name))
                .flat_map(|(_, value)| values_of(value))
                .collect(),
            client: HttpClient::new(model.rules.clone()),
            model: Arc::new(model.clone()),
            headers: fields,
            budget: Arc::new(TokenBudget::new(door.clone())),
            door,
            uid,
            shared,
            large: Semaphore::new(MAX_OWN_LARGE),
            requests: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        })
    }

    fn api(&self) -> ModelApi {
        self.model.requests.api
    }

    /// The refusal of a request of a connection that was cut off, which is noted.
    fn no_room(&self) -> ModelRefusal {
        let refusal = no_room();
        self.note_refusal(&refusal);
        refusal
    }

    fn note_refusal(&self, refusal: &ModelRefusal) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) < MAX_REFUSALS {
            let why = brief(&refusal.message, 300);
            info!(agent = %self.door.agent, session = %self.door.session, "a request to the model is refused: {why}");
            let recorded = (self.shared.record)(TrailEvent::ModelRefused {
                agent: &self.door.agent,
                session: &self.door.session,
                person: self.uid,
                status: refusal.status.as_u16().into(),
                why: &why,
            });
            if let Err(error) = recorded {
                error!("a refusal was not recorded: {error:#}");
            }
        }
    }
}

/// Serves a connection until it is over.
pub(super) async fn serve(relay: Arc<Relay>, stream: UnixStream) {
    let tenant = Tenant::Agent {
        person: relay.uid,
        session: relay.door.session.clone(),
    };
    let peer = Outbox::charged(MAX_BODY, &relay.shared.room, tenant);
    let mut wire = ModelWire::new(stream, peer, relay.api());
    loop {
        let (request, room) = match wire.request(&relay.large).await {
            Ok(Some(next)) => next,
            Ok(None) => return,
            Err(refusal) => {
                relay.note_refusal(&refusal);
                if wire.refuse(&refusal, false).await.is_ok() {
                    wire.linger().await;
                }
                return;
            }
        };
        let closes = request
            .field("connection")
            .is_some_and(|value| value.to_ascii_lowercase().contains("close"));
        match answer(&relay, &mut wire, request, room).await {
            Ok(true) if !closes => {}
            _ => return,
        }
    }
}

/// Answers a request; `false`: nothing more can be said on this connection.
async fn answer(
    relay: &Arc<Relay>,
    wire: &mut ModelWire,
    request: ModelRequest,
    room: BodyRoom<'_>,
) -> io::Result<bool> {
    let refused = match judged(relay, request).await {
        Ok(passed) => match sent(relay, wire, passed, room).await? {
            Ok(whole) => return Ok(whole),
            Err(refusal) => refusal,
        },
        Err(refusal) => {
            relay.note_refusal(&refusal);
            refusal
        }
    };
    let goes_on = !wire.is_cut_off();
    wire.refuse(&refused, goes_on).await?;
    Ok(goes_on)
}

async fn judged(relay: &Relay, request: ModelRequest) -> Result<OutgoingRequest, ModelRefusal> {
    if request.body.len() <= JUDGED_ASIDE {
        return judge_request(&relay.model.requests, request);
    }
    let turn = relay
        .shared
        .judging
        .of(relay.uid, Some(relay.door.session.clone()))
        .await;
    let model = relay.model.clone();
    let judged = spawn_blocking(move || {
        let passed = judge_request(&model.requests, request);
        drop(turn);
        passed
    });
    let judged = judged.await;
    judged.unwrap_or_else(|_| {
        Err(ModelRefusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the daemon is ending",
        ))
    })
}

/// Sends a request and passes its answer on.
async fn sent(
    relay: &Arc<Relay>,
    wire: &mut ModelWire,
    passed: OutgoingRequest,
    room: BodyRoom<'_>,
) -> io::Result<Result<bool, ModelRefusal>> {
    if wire.is_cut_off() {
        return Ok(Err(relay.no_room()));
    }
    let url = match address(&relay.model, &passed.target) {
        Ok(url) => url,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let reserved = match relay.budget.reserve(passed.cost) {
        Ok(reserved) => reserved,
        Err(refusal) => {
            relay.note_refusal(&refusal);
            return Ok(Err(refusal));
        }
    };
    let mut exchange = match Exchange::begin(relay, &passed, reserved) {
        Ok(exchange) => exchange,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut headers = passed.headers;
    for (name, value) in &relay.headers {
        headers.insert(name, value.clone());
    }
    let asked = async {
        let limits = HttpLimits::all(SILENCE);
        let mut tries = 1;
        loop {
            let mut request = hyper::Request::new(passed.body.clone());
            *request.method_mut() = passed.method.clone();
            *request.uri_mut() = url.clone();
            *request.headers_mut() = headers.clone();
            match relay.client.ask(request, limits).await {
                Err(HttpError::Unsent { .. }) if tries < MAX_UNSENT => tries += 1,
                asked => return asked,
            }
        }
    };
    let asked = tokio::select! {
        biased;
        // What it began costs as much as was reserved.
        () = room.wait_for_cut_off() => return Ok(Err(relay.no_room())),
        asked = asked => asked,
        () = wire.gone() => return Ok(Ok(false)),
    };
    // An answer may take long: the request is not kept for it.
    drop((passed.body, room));
    let mut response = match asked {
        Ok(response) => response,
        Err(error) => {
            if !error.was_sent() {
                exchange.free();
            }
            let status = match error {
                HttpError::Silent { .. } => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::BAD_GATEWAY,
            };
            warn!(agent = %relay.door.agent, "the model was not reached: {error}");
            return Ok(Err(ModelRefusal::new(status, error.to_string())));
        }
    };
    exchange.status = response.status.as_u16();
    if response.status.is_redirection() || response.status.is_informational() {
        exchange.free();
        let why = format!(
            "the model's server redirects or changes the protocol ({}), which is not followed",
            response.status.as_u16()
        );
        warn!(agent = %relay.door.agent, "{why}");
        return Ok(Err(ModelRefusal::new(StatusCode::BAD_GATEWAY, why)));
    }
    if !response.status.is_success() {
        // Providers charge nothing for an error.
        exchange.free();
    }
    relayed(relay, wire, &mut response, &mut exchange)
        .await
        .map(Ok)
}

/// Passes an answer on as it comes; `false`: it did not come to its end.
async fn relayed(
    relay: &Relay,
    wire: &mut ModelWire,
    response: &mut ResponseStream,
    exchange: &mut Exchange,
) -> io::Result<bool> {
    let has_events = response.header("content-type").is_some_and(|kind| {
        kind.trim()
            .to_ascii_lowercase()
            .starts_with("text/event-stream")
    });
    exchange.meter = Some(Meter::new(relay.api(), has_events));
    let mut mask = Mask::new(&relay.hidden);
    let head = ResponseHead {
        status: response.status,
        fields: passed_fields(&response.headers, &relay.hidden),
        length: response
            .header(CONTENT_LENGTH.as_str())
            .and_then(|length| length.parse().ok()),
    };
    let in_chunks = head.length.is_none();
    wire.begin(&head).await?;
    loop {
        let part = tokio::select! {
            part = response.chunk() => part,
            () = wire.gone() => return Ok(false),
        };
        match part {
            Ok(Some(part)) => {
                exchange.length += part.len() as u64;
                if let Some(meter) = &mut exchange.meter {
                    meter.feed(&part);
                }
                wire.part(&mask.feed(part), in_chunks).await?;
                if exchange.length > MAX_ANSWER {
                    warn!(agent = %relay.door.agent, "an answer of the model over {} MiB is cut off", MAX_ANSWER >> 20);
                    return Ok(false);
                }
            }
            Ok(None) => {
                exchange.ended = true;
                exchange.settle();
                wire.part(&mask.end(), in_chunks).await?;
                wire.end(in_chunks).await?;
                return Ok(true);
            }
            Err(error) => {
                warn!(agent = %relay.door.agent, "an answer of the model was broken off: {error}");
                wire.part(&mask.end(), in_chunks).await?;
                return Ok(false);
            }
        }
    }
}

fn passed_fields<'h>(headers: &'h HeaderMap, hidden: &[SecretString]) -> Vec<(&'h str, Bytes)> {
    let passes = |name: &HeaderName| {
        ANSWER_FIELDS
            .iter()
            .any(|pattern| fits(pattern, name.as_str()))
    };
    let fields = headers.iter().filter(|(name, _)| passes(name));
    let masked = |value: &HeaderValue| {
        let mut mask = Mask::new(hidden);
        let mut masked = Vec::from(mask.feed(Bytes::copy_from_slice(value.as_bytes())));
        masked.extend_from_slice(&mask.end());
        Bytes::from(masked)
    };
    fields
        .map(|(name, value)| (name.as_str(), masked(value)))
        .collect()
}

/// A request that went out. When it is over, however, it is settled and recorded.
struct Exchange {
    relay: Arc<Relay>,
    reserved: TokenReservation,
    asks: ModelRequestKind,
    /// The model that is asked.
    model: Arc<str>,
    /// The task that its agent has claimed.
    task: Option<u64>,
    number: u64,
    /// The status of its answer; 0: there was none.
    status: u16,
    /// Bytes of its answer.
    length: u64,
    meter: Option<Meter>,
    ended: bool,
    /// It costs nothing.
    free: bool,
    settled: bool,
}

impl Exchange {
    /// Records that a request goes out.
    ///
    /// # Errors
    /// That cannot be recorded, and so it does not.
    fn begin(
        relay: &Arc<Relay>,
        passed: &OutgoingRequest,
        reserved: TokenReservation,
    ) -> Result<Exchange, ModelRefusal> {
        let number = relay.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let path = passed.target.split('?').next().unwrap_or_default();
        let recorded = (relay.shared.record)(TrailEvent::ModelRequest {
            agent: &relay.door.agent,
            session: &relay.door.session,
            person: relay.uid,
            n: number,
            api: relay.api().name(),
            method: passed.method.as_str(),
            path,
            model: Some(&*passed.model).filter(|model| !model.is_empty()),
            sha256: &sha256_hex(&passed.body),
            length: passed.body.len() as u64,
            reserved: reserved.tokens.sum(),
        });
        recorded.map_err(|error| {
            error!("a request to the model was not recorded, and so not sent: {error:#}");
            let why =
                "it cannot be recorded, so nothing was sent: the operator has to see to the trail";
            ModelRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why)
        })?;
        Ok(Exchange {
            relay: relay.clone(),
            reserved,
            asks: passed.asks,
            model: passed.model.as_str().into(),
            task: relay.door.task(),
            number,
            status: 0,
            length: 0,
            meter: None,
            ended: false,
            free: false,
            settled: false,
        })
    }

    fn free(&mut self) {
        self.free = true;
    }

    /// The cost, and true if it was counted.
    fn cost(&mut self) -> (TokenCounts, bool) {
        let reserved = self.reserved.tokens;
        if self.free || reserved == TokenCounts::default() {
            return (TokenCounts::default(), true);
        }
        let meter = self
            .meter
            .take()
            .filter(|_| self.asks == ModelRequestKind::Generate);
        // What was read is often told at the beginning; what was written, only at the end.
        let at_most = TokenCounts {
            read: meter
                .as_ref()
                .and_then(Meter::read_so_far)
                .unwrap_or(reserved.read),
            ..reserved
        };
        let counted = meter.and_then(|meter| meter.end(self.ended));
        counted.map_or((at_most, false), |counted| (counted, true))
    }

    fn settle(&mut self) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let (cost, is_counted) = self.cost();
        self.reserved.settle(cost);
        let relay = &self.relay;
        let recorded = (relay.shared.record)(TrailEvent::ModelAnswer {
            agent: &relay.door.agent,
            session: &relay.door.session,
            person: relay.uid,
            n: self.number,
            status: self.status.into(),
            length: self.length,
            tokens_in: cost.read,
            tokens_out: cost.written,
            tokens_cached: cost.cached,
            tokens_cache_write: cost.cache_write,
            count: if is_counted { "counted" } else { "reserved" },
        });
        if let Err(error) = recorded {
            error!("the answer of a model was not recorded: {error:#}");
        }
        if cost == TokenCounts::default() {
            return;
        }
        let door = &self.relay.door;
        let payer = Payer {
            day: CostDay::of(SystemTime::now()),
            uid: self.relay.uid,
            agent: Some(&door.agent),
            client: None,
            task: self.task,
            model: Some(&self.model).filter(|model| !model.is_empty()),
        };
        let cost = CostSum {
            model_requests: 1,
            tokens_in: cost.read,
            tokens_out: cost.written,
            tokens_cached: cost.cached,
            tokens_cache_write: cost.cache_write,
            ..CostSum::default()
        };
        self.relay
            .shared
            .ledger
            .count(&payer, CostLine::MODEL, &cost);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.settle();
    }
}

/// The address that a request goes to.
fn address(model: &ModelSpec, target: &str) -> Result<Uri, ModelRefusal> {
    let base = model.url.to_string();
    let url = format!("{}{target}", base.trim_end_matches('/'));
    url.parse()
        .map_err(|_| ModelRefusal::new(StatusCode::BAD_REQUEST, "the path cannot be part of a URL"))
}
