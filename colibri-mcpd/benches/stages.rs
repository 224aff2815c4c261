//! What each stage costs a call: `cargo bench -p colibri-mcpd --bench stages`.
//!
//! The stages' own functions are called one after the other over batches of calls to one server, on
//! one thread, and the time of each is added up, so that nothing but the stage itself is in it: no
//! socket, no pipe, no waiting. The trail is in `TMPDIR`, written as without `--trail-sync`. The
//! shares are what counts; times depend on the machine.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use colibri_api::{CostDay, CostMode};
use colibri_confine::{
    BoxFuture, LaunchSpec, ServerExit, ServerProcess, SpawnError, SpawnedServer, Spawner,
};
use colibri_mcpd::catalog::ServerHost;
use colibri_mcpd::registry::parse;
use colibri_mcpd::registry::secrets::SecretStore;
use colibri_mcpd::registry::{LoadedRegistry, RegisteredServer as Entry};
use colibri_mcpd::relay::charge::charge;
use colibri_mcpd::relay::{
    Call, CallArguments, CallMetrics, CallOutcome, CallRequest, CallRules, CallTarget, Chain,
    Client, DeferredCall, Defers, Recorder, RequestParts, ServerAnswer, cost, exit,
    oversized_result, record,
};
use colibri_mcpd::servers;
use colibri_peer::{ByteBudget, Frame, FrameReader, Outbox};
use colibri_policy::quota::UserQuota as ShareLimits;
use colibri_policy::{
    ApprovalQueue, Caller, Choice, Clients, DEFAULT_EXPIRY, DailyUsage, Gates, Road, UserQuotas,
};
use colibri_protocol::{self as protocol, Capability, Feature, SessionPhase, Version};
use colibri_store::Database;
use colibri_trail::{SegmentLimits, Trail, TrailHead, TrailOptions, Witness};
use colibri_wire::{Envelope, EnvelopeKind, RequestId};
use tokio::io::{AsyncWriteExt as _, DuplexStream};

/// Calls that arrive together.
const BATCH: usize = 64;
const VERSION: Version = Version::V2025_11_25;
/// In-memory pipes hold a whole batch.
const PIPE: usize = 16 << 20;

const STAGES: [&str; 11] = [
    "enter: read, classify, admit",
    "validate: gates, rules, schema",
    "record: enter",
    "dispatch: edit, queue for the server",
    "exit: read the answer",
    "exit: whether it is over its limit",
    "exit: shape it",
    "record: exit",
    "exit: queue for the client",
    "exit: count what it cost",
    "cost: budget, limit of the result, count",
];

/// The stage that looks whether a result is over its limit.
const LIMIT: usize = 5;

struct Nobody;

impl Witness for Nobody {
    fn witness(&self, _: &TrailHead) -> std::io::Result<()> {
        Ok(())
    }
}

/// Starts the one server there is: a task that answers each call with a fixed text.
struct InMemory;

struct Forever;

impl ServerProcess for Forever {
    fn pid(&self) -> u32 {
        1
    }

    fn wait(&mut self) -> BoxFuture<'_, ServerExit> {
        Box::pin(std::future::pending())
    }
}

impl Spawner for InMemory {
    fn spawn(&self, _: LaunchSpec) -> BoxFuture<'_, Result<SpawnedServer, SpawnError>> {
        let (stdin, requests) = tokio::io::duplex(PIPE);
        let (answers, stdout) = tokio::io::duplex(PIPE);
        tokio::spawn(echo(requests, answers));
        let spawned = SpawnedServer {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(tokio::io::empty()),
            process: Box::new(Forever),
        };
        Box::pin(std::future::ready(Ok(spawned)))
    }
}

async fn echo(requests: DuplexStream, mut answers: DuplexStream) {
    let mut reader = FrameReader::new(requests, PIPE);
    while reader.fill().await.unwrap_or(false) {
        let mut out = Vec::new();
        while let Some(Frame::Line(line)) = reader.pop() {
            let Ok(EnvelopeKind::Request { id, method, .. }) =
                Envelope::parse(&line).map(|envelope| envelope.kind)
            else {
                continue;
            };
            let result = if method.is_string("initialize") {
                r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"e","version":"1"}}"#
            } else if method.is_string("tools/list") {
                r#""result":{"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}]}"#
            } else if method.is_string("tools/call") {
                r#""result":{"content":[]}"#
            } else {
                r#""error":{"code":-32601,"message":"no"}"#
            };
            out.extend_from_slice(
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{},{result}}}\n", id.text()).as_bytes(),
            );
        }
        if answers.write_all(&out).await.is_err() {
            return;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    for (size, batches) in [(64, 2000), (64 * 1024, 40)] {
        let times = runtime.block_on(measure(size, batches))?;
        // The last is part of others.
        let total: Duration = times[..STAGES.len() - 1].iter().sum();
        let calls = (batches * BATCH) as u32;
        println!(
            "{size} bytes of text each way, {BATCH} calls together: {:.2} us a call",
            micros(total / calls)
        );
        for (stage, time) in STAGES.iter().zip(times) {
            let share = 100.0 * time.as_secs_f64() / total.as_secs_f64();
            println!("  {stage:40} {:8.3} us {share:5.1} %", micros(time / calls));
        }
        // What a result pays that is below its limit.
        let rule = times[LIMIT] / calls;
        let share = times[LIMIT].as_secs_f64() / total.as_secs_f64();
        println!(
            "  the limit of a result: {:.3} us, {share:.4} of the call, at most 1 us",
            micros(rule)
        );
        if rule > Duration::from_micros(1) {
            return Err("a result below its limit pays too much".into());
        }
    }
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A board that no call is left to.
struct NoBoard;

impl Defers for NoBoard {
    fn defer(&self, _: &Client, _: &DeferredCall<'_>) -> anyhow::Result<u64> {
        Err(anyhow::anyhow!("there is no board"))
    }

    fn has_claimed(&self, _: u32, _: u64) -> bool {
        false
    }
}

async fn measure(size: usize, batches: usize) -> Result<[Duration; STAGES.len()], Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let trail = Trail::open(TrailOptions {
        state_dir: directory.path().to_owned(),
        sync: false,
        witness: Arc::new(Nobody),
        notify: |_, what| eprintln!("{what}"),
        limits: SegmentLimits::default(),
    })?;
    let chain = Arc::new(Chain {
        recorder: Arc::new(Recorder::Trail(trail)),
        rules: Arc::new(CallRules {
            gates: ArcSwap::from_pointee(Gates::new(false, true)),
            clients: ArcSwap::from_pointee(Clients::absent(directory.path().join("clients.json"))),
        }),
        metrics: CallMetrics::default(),
        ledger: Default::default(),
        approvals: ApprovalQueue::new(DEFAULT_EXPIRY),
        states: colibri_mcpd::relay::request_state::RequestStates::of_this_process()?,
        tickets: Default::default(),
        results: Default::default(),
        board: Arc::new(NoBoard),
        flows: Arc::default(),
        catalog: Default::default(),
    });
    let budget = Arc::new(ByteBudget::new(1 << 30));
    let shares = Arc::new(UserQuotas::new(ShareLimits::NONE));
    let host = ServerHost::new(servers::ServerDependencies {
        spawner: Arc::new(InMemory),
        store: Arc::new(Database::open(directory.path())?),
        chain: chain.clone(),
        budget: budget.clone(),
        max_frame: 16 << 20,
        secrets: Arc::new(SecretStore::beside(
            &directory.path().join("external-mcp.json"),
        )),
        tokens: Arc::new(colibri_outbound::oauth::TokenStore::below(directory.path())),
        call_timeout: Duration::from_secs(30),
        pins: None,
        shares: shares.clone(),
    });
    let registry = parse(
        br#"{"servers":{"echo":{"command":"/bench/echo","result_limit":"1M"}}}"#,
        "bench",
    )?;
    host.load(&LoadedRegistry {
        servers: registry
            .servers
            .into_iter()
            .map(|(id, entry)| {
                let entry = Arc::new(entry);
                (
                    id,
                    Entry {
                        entry,
                        refusal: None,
                    },
                )
            })
            .collect(),
        agents: Default::default(),
        notes: Vec::new(),
        is_absent: false,
    });
    let caller = Caller {
        uid: 1001,
        gid: 1001,
        pid: Some(4242),
    };
    let spent = DailyUsage {
        day: CostDay::of(SystemTime::now()),
        bytes: 0,
        own: Some(Choice {
            mode: Some(CostMode::Max),
            at: 0,
            before: 0,
        }),
    };
    shares.recall([(caller.uid, spent)]);
    let outbox = Outbox::new(PIPE, budget);
    let client = Client::new(1, caller, outbox.clone(), 2 * BATCH);
    let client = Arc::new(client.sharing(shares.of(caller.uid)));
    host.discovered(host.discover(&host.unseen(), &client))
        .await;
    let target = host
        .table()
        .by_name(Feature::Tool, "echo__echo")
        .ok_or("the server was not seen")?
        .target()
        .clone();

    let writer = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.drive(tokio::io::sink()).await }
    });
    let text = "x".repeat(size);
    let mut times = [Duration::ZERO; STAGES.len()];
    for round in 0..=batches {
        if round == 1 {
            // The first round compiles the schema and starts the server.
            times = Default::default();
        }
        let requests: Vec<Bytes> = (0..BATCH)
            .map(|n| {
                let id = round * BATCH + n;
                Bytes::from(format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo__echo","arguments":{{"text":"{text}"}}}}}}"#
                ))
            })
            .collect();
        let answers: Vec<Bytes> = (0..BATCH)
            .map(|n| {
                Bytes::from(format!(
                    r#"{{"jsonrpc":"2.0","id":{n},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
                ))
            })
            .collect();

        // What is recorded and shaped, and what is dispatched, are calls of their own: a call that
        // a server has is its session's, and ends there.
        let start = Instant::now();
        let mut entered: Vec<Box<Call>> = requests
            .iter()
            .filter_map(|frame| enter(&client, &target, frame))
            .collect();
        times[0] += start.elapsed();
        let start = Instant::now();
        for call in &mut entered {
            let rights = chain.rules.rights(&call.client);
            call.entry.terms = cost::terms(&rights, &call.client);
            std::hint::black_box(chain.decide(&rights, call));
        }
        times[1] += start.elapsed();
        let start = Instant::now();
        record::entered(&chain.recorder, &mut entered)?;
        times[2] += start.elapsed();

        // The rule alone: validating and shaping have parts of it, too. A mode acts, and its budget
        // is never spent.
        let rights = chain.rules.rights(&client);
        let start = Instant::now();
        for call in &mut entered {
            call.entry.terms = cost::terms(&rights, &call.client);
            std::hint::black_box(cost::budget_of(&call.client, call.entry.terms));
            std::hint::black_box(cost::limit(call));
            std::hint::black_box(cost::answered(call, size));
        }
        times[10] += start.elapsed();
        shares.recall([(caller.uid, spent)]);

        let start = Instant::now();
        let outcomes: Vec<CallOutcome> = answers.iter().filter_map(read_answer).collect();
        times[4] += start.elapsed();
        let start = Instant::now();
        let outcomes: Vec<CallOutcome> = entered
            .iter()
            .zip(outcomes)
            .filter_map(|(call, outcome)| oversized_result::within_limit(call, outcome).ok())
            .collect();
        times[LIMIT] += start.elapsed();
        let start = Instant::now();
        let shaped: Vec<(Box<Call>, exit::ExitAnswer)> = entered
            .into_iter()
            .zip(outcomes)
            .map(|(call, outcome)| {
                let answer = exit::shape(&call, outcome);
                (call, answer)
            })
            .collect();
        times[6] += start.elapsed();
        let start = Instant::now();
        record::left(&chain.recorder, &shaped)?;
        times[7] += start.elapsed();
        let start = Instant::now();
        let queued: Vec<usize> = shaped
            .iter()
            .map(|(call, answer)| exit::deliver(call, answer, || None))
            .collect();
        times[8] += start.elapsed();
        let start = Instant::now();
        for ((call, answer), queued) in shaped.iter().zip(queued) {
            charge(&chain.ledger, call, answer, call.entered.elapsed(), queued);
        }
        times[9] += start.elapsed();

        let calls: Vec<Box<Call>> = requests
            .iter()
            .filter_map(|frame| enter(&client, &target, frame))
            .collect();
        assert_eq!(
            (calls.len(), shaped.len()),
            (BATCH, BATCH),
            "a call was lost"
        );
        let start = Instant::now();
        for call in calls {
            chain.send(call);
        }
        times[3] += start.elapsed();
        client.all_landed().await;
    }
    outbox.close();
    writer.await??;
    host.end(Duration::from_secs(1)).await;
    Ok(times)
}

/// What a client's session makes of a line.
fn enter(client: &Arc<Client>, target: &Arc<CallTarget>, frame: &Bytes) -> Option<Box<Call>> {
    let EnvelopeKind::Request { id, method, params } = Envelope::parse(frame).ok()?.kind else {
        return None;
    };
    let key = RequestId::of(id);
    client.admit(&key).ok()?;
    let method = method.as_str()?;
    let request = protocol::classify(
        SessionPhase::Legacy(VERSION),
        &[Capability::Tools],
        &method,
        params,
    )
    .ok()?;
    let name = params?.get("name")?;
    let arguments = params?.get("arguments")?;
    let request = CallRequest {
        client: client.clone(),
        id: key,
        batch: None,
        client_info: None,
        version: request.version,
        method: request.method,
        frame: frame.clone(),
        held: 0,
        parts: RequestParts {
            id: id.span(),
            params: params.map(|params| params.span()),
            name: Some(name.span()),
            arguments: CallArguments::At(arguments.span()),
            ..RequestParts::default()
        },
        trace: None,
        entered: tokio::time::Instant::now(),
        time: SystemTime::now(),
    };
    Some(Box::new(Call::new(request, target.clone(), Road::Lines)))
}

/// What a server's session makes of a line.
fn read_answer(frame: &Bytes) -> Option<CallOutcome> {
    let EnvelopeKind::Answer { id, outcome } = Envelope::parse(frame).ok()?.kind else {
        return None;
    };
    Some(CallOutcome::Relayed(ServerAnswer {
        frame: frame.clone(),
        id: id?.span(),
        outcome: outcome
            .map(|result| result.span())
            .map_err(|error| error.span()),
        says_error: false,
        edits: None,
        version: VERSION,
        is_interim: false,
    }))
}
