//! A deterministic simulation: the daemon's sessions, chain, pool and relay over in-memory pipes,
//! with a clock that jumps to the next thing that happens, servers and clients that misbehave by
//! chance, and a model that knows what may never happen. One seed decides everything, so what went
//! wrong once can be seen again:
//!
//! ```text
//! COLIBRI_SIM_SEED=123 cargo test -p colibri-mcpd --test simulation
//! ```
//!
//! runs that seed alone and prints all that happened; with COLIBRI_SIM_SEEDS=N it is the first of
//! N, quietly. `COLIBRI_SHORT=1` runs a twentieth of the seeds.
//!
//! What the model asserts:
//! - one answer: every request that a client may still hear about is answered exactly once, within
//!   the limits, with what belongs to it; a cancelled one at most once, and not after its
//!   cancellation was read; a batch as a whole;
//! - order: all progress of a call comes before its answer, in order, under the client's token;
//! - resources: a client is told of updates of what it is subscribed to, under its own
//!   subscription, and of nothing else; a process is subscribed to a resource once, and to none
//!   that nobody wanted;
//! - the pool: a call comes to one process, once, after its handshake, in the era of the process's
//!   first message, to nobody else's process, never through a closed gate; its cancellation reaches
//!   the process that has it;
//! - no leak: at the end there is no client, call, queued byte, process, or task.
//!
//! Left out: the `colibri_*` tools that read the store, which does its work on threads of its own.
//! Their calls pass the same stages; tests beside them show what they answer.

// Tests may stop where something is wrong.
#![allow(clippy::unwrap_used)]

mod client;
mod rng;
mod server;
mod world;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use clap::Parser;
use colibri_mcpd::agents::{self, AgentRoster};
use colibri_mcpd::catalog::ServerHost;
use colibri_mcpd::config::{DaemonConfig, DaemonFlags};
use colibri_mcpd::daemon::Daemon;
use colibri_mcpd::daemon::sources::SourceMetadata;
use colibri_mcpd::inbound::AgentDoors;
use colibri_mcpd::model::{ModelRelays, RecordEvent};
use colibri_mcpd::registry::parse;
use colibri_mcpd::registry::secrets::SecretStore;
use colibri_mcpd::registry::{LoadedRegistry, RegisteredServer as Entry};
use colibri_mcpd::relay::{CallMetrics, CallRules, Chain, Recorder};
use colibri_mcpd::results::Results;
use colibri_mcpd::servers;
use colibri_peer::ByteBudget;
use colibri_policy::quota::UserQuota as ShareLimits;
use colibri_policy::{ApprovalQueue, Clients, DEFAULT_EXPIRY, Gates, UserQuotas};
use colibri_store::Database;
use colibri_store::cost_ledger::CostLedger;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use client::Person;
use rng::Rng;
use server::{LEGACY, MODERN, Probe, Profile, SimulatedSpawner};
use world::{FOREVER, World};

/// Seeds of an ordinary run.
const SEEDS: u64 = 1000;
/// The longest that a server may be idle, in seconds.
const MAX_IDLE: u64 = 20;
/// Calls in flight, then servers, then clients: what the daemon may take to end.
const MAX_TO_END: Duration = Duration::from_secs(5 + 10 + 3);

/// One store for all: what is kept in it is never found again, because no two registries have the
/// same entries.
static STORE: LazyLock<(tempfile::TempDir, Arc<Database>)> = LazyLock::new(|| {
    // Memory where there is some: what the disk can do is the store's own tests' business.
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
    .unwrap();
    let store = Arc::new(Database::open(directory.path()).unwrap());
    (directory, store)
});
/// Tells the entries of one registry from all others.
static REGISTRIES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// What became of a seed.
struct Report {
    hash: u64,
    log: String,
    failures: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
}

/// Runs one seed, from nothing to nothing.
fn run(seed: u64) -> Report {
    PANICS.set(0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        // One thread does one thing after the other.
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let world = runtime.block_on(simulate(seed));
    let tasks = runtime.metrics().num_alive_tasks();
    drop(runtime);
    if tasks > 0 {
        world.fail("the runtime", &format!("{tasks} tasks never ended"));
    }
    if PANICS.get() > 0 {
        world.fail("the runtime", "something panicked");
    }
    let mut books = world.books();
    Report {
        hash: books.hash,
        log: std::mem::take(&mut books.log),
        failures: std::mem::take(&mut books.failures),
        counts: std::mem::take(&mut books.counts),
    }
}

/// The servers of a registry, as the registry has them: entries of `generation` differ from those
/// of any other.
fn registry(
    profiles: &BTreeMap<String, Profile>,
    limits: &BTreeMap<String, [u64; 4]>,
    of: &BTreeMap<String, u64>,
) -> LoadedRegistry {
    let mut servers = serde_json::Map::new();
    for (id, generation) in of {
        let [start, call, total, idle] = limits[id];
        servers.insert(
            id.clone(),
            json!({"command": format!("/simulated/{id}"), "args": [generation.to_string()],
                   "isolation": profiles[id].isolation, "start_timeout_ms": start, "timeout_ms": call,
                   "total_timeout_ms": total, "idle_timeout_s": idle}),
        );
    }
    let text = json!({"servers": servers}).to_string();
    let registry = parse(text.as_bytes(), "simulated").unwrap();
    let entry = |entry| Entry {
        entry: Arc::new(entry),
        refusal: None,
    };
    LoadedRegistry {
        servers: registry
            .servers
            .into_iter()
            .map(|(id, found)| (id, entry(found)))
            .collect(),
        agents: BTreeMap::new(),
        notes: Vec::new(),
        is_absent: false,
    }
}

/// The servers that can be subscribed to: not those with a process for each call, which has nobody
/// to tell.
fn telling(profiles: &BTreeMap<String, Profile>) -> BTreeSet<String> {
    let telling = profiles
        .iter()
        .filter(|(_, profile)| profile.resources && profile.isolation != "call");
    telling.map(|(id, _)| id.clone()).collect()
}

fn configuration() -> DaemonConfig {
    DaemonFlags::try_parse_from([
        "colibri-mcpd",
        "--external-call",
        "--socket",
        "/s",
        "--state-dir",
        "/s",
        "--skills",
        "/s",
    ])
    .unwrap()
    .resolve()
    .unwrap()
}

async fn simulate(seed: u64) -> Arc<World> {
    let mut rng = Rng::new(seed);
    let world = World::new(rng.chance(12));
    let calm = world.calm;
    let mut profiles = BTreeMap::new();
    let mut limits = BTreeMap::new();
    for number in 0..rng.between(1, 4) {
        let version = match rng.below(6) {
            index @ 0..4 => LEGACY[index as usize],
            _ => MODERN,
        };
        let profile = Profile {
            version,
            probe: match rng.below(6) {
                0 if !calm => Probe::Silence,
                1 => Probe::Exit,
                _ => Probe::Error,
            },
            tools: rng.below(4),
            pages: rng.chance(30),
            isolation: rng.pick::<&str>(&["user", "shared", "client", "call"]),
            faulty: !calm && rng.chance(85),
            limit: None,
            resources: rng.chance(60),
        };
        // A process of one call ends soon, so everybody's turn comes, in a calm world in time.
        let least = if calm { 2 } else { 1 };
        let limit =
            (profile.isolation == "call" && rng.chance(50)).then(|| rng.between(least, 3) as usize);
        let profile = Profile { limit, ..profile };
        let idle = rng.between(1, MAX_IDLE);
        let limit = if calm {
            [60_000, 30_000, 60_000, idle]
        } else {
            [
                rng.between(7000, 20_000),
                rng.between(2000, 5000),
                rng.between(4000, 20_000),
                idle,
            ]
        };
        limits.insert(format!("s{number}"), limit);
        profiles.insert(format!("s{number}"), profile);
    }
    world.note(
        "the world",
        &format!("{} {profiles:?}", if calm { "calm" } else { "" }),
    );

    let budget = Arc::new(ByteBudget::new(1 << 30));
    let spawner = SimulatedSpawner {
        world: world.clone(),
        profiles: profiles.clone(),
        rng: Mutex::new((rng.fork(), 0)),
    };
    let spawner = Arc::new(spawner);
    let secrets = Arc::new(SecretStore::beside(Path::new(
        "/simulated/external-mcp.json",
    )));
    let store = STORE.1.clone();
    let recorder = Arc::new(Recorder::Off);
    let rules = Arc::new(CallRules {
        gates: ArcSwap::from_pointee(Gates::new(false, true)),
        clients: ArcSwap::from_pointee(Clients::absent("/simulated/clients.json".into())),
    });
    let results: Arc<Results> = Default::default();
    let ledger = Arc::new(CostLedger::default());
    let unrecorded: Box<RecordEvent> = Box::new(|_| Ok(()));
    let agents = AgentRoster::new(agents::AgentDependencies {
        spawner: spawner.clone(),
        recorder: recorder.clone(),
        rules: rules.clone(),
        results: results.clone(),
        secrets: secrets.clone(),
        socket: "/simulated/colibri.sock".into(),
        state_dir: STORE.0.path().to_owned(),
        store: store.clone(),
        models: Arc::new(ModelRelays::new(
            unrecorded,
            ledger.clone(),
            budget.clone(),
            secrets.clone(),
        )),
        autospawn: false,
    })
    .unwrap();
    let chain = Arc::new(Chain {
        recorder,
        rules,
        metrics: CallMetrics::default(),
        ledger,
        approvals: ApprovalQueue::new(DEFAULT_EXPIRY),
        states: colibri_mcpd::relay::request_state::RequestStates::of_this_process().unwrap(),
        tickets: Default::default(),
        results,
        board: agents.board().clone(),
        flows: Arc::default(),
        catalog: Default::default(),
    });
    let host = ServerHost::new(servers::ServerDependencies {
        spawner,
        store: store.clone(),
        chain: chain.clone(),
        budget: budget.clone(),
        max_frame: 1 << 20,
        secrets,
        tokens: Arc::new(colibri_outbound::oauth::TokenStore::below(Path::new(
            "/simulated",
        ))),
        call_timeout: Duration::from_secs(30),
        // Pins wait for the disk, on a thread of their own.
        pins: None,
        shares: Arc::new(UserQuotas::new(ShareLimits::NONE)),
    });
    let fresh = || REGISTRIES.fetch_add(1, Ordering::Relaxed);
    let mut entries: BTreeMap<String, u64> =
        profiles.keys().map(|id| (id.clone(), fresh())).collect();
    host.load(&registry(&profiles, &limits, &entries));
    let config = configuration();
    let sources = SourceMetadata::recall(&config).unwrap();
    let daemon = Daemon::new(
        config,
        sources,
        chain.clone(),
        (host.clone(), agents),
        store,
        budget.clone(),
        AgentDoors::beside,
    );

    let people: Vec<_> = (0..rng.between(1, 4))
        .map(|number| {
            let person = Person {
                world: world.clone(),
                daemon: daemon.clone(),
                name: format!("c{number}"),
                uid: 1000 + rng.below(2) as u32,
                servers: profiles.keys().cloned().collect(),
                telling: telling(&profiles),
                rng: rng.fork(),
            };
            tokio::spawn(person.live())
        })
        .collect();

    // The operator: changes the registry now and then, and perhaps ends the daemon while it is in
    // use.
    let early = !calm && rng.chance(35);
    if !calm {
        for _ in 0..rng.below(4) {
            sleep(rng.millis(8000)).await;
            for id in profiles.keys() {
                match rng.below(10) {
                    0..2 => drop(entries.remove(id)),
                    2..4 => drop(entries.insert(id.clone(), fresh())),
                    _ => drop(entries.entry(id.clone()).or_insert_with(fresh)),
                }
            }
            world.count("reload");
            world.note(
                "the operator",
                &format!("reloads: {:?}", entries.keys().collect::<Vec<_>>()),
            );
            host.load(&registry(&profiles, &limits, &entries));
        }
        if early {
            sleep(rng.millis(8000)).await;
        }
    }
    if early {
        end(&world, &daemon, &host).await;
    }
    for person in people {
        match timeout(FOREVER * 10, person).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => world.fail("a client", &format!("did not end well: {error}")),
            Err(_) => world.fail("a client", "never ended"),
        }
    }
    nobody_left(&world, &daemon);
    if !early {
        if rng.chance(50) {
            // Servers that nobody uses end by themselves, in the end.
            sleep(Duration::from_secs(MAX_IDLE + 60)).await;
            if host.running() > 0 || world.books().processes > 0 {
                world.fail(
                    "the host",
                    &format!("{} processes run although nobody uses them", host.running()),
                );
            }
        }
        end(&world, &daemon, &host).await;
    }

    drop((daemon, host, chain));
    sleep(Duration::from_secs(120)).await;
    // A call that waited for another attempt holds its request until it is told that nobody wants
    // it.
    if budget.queued() > 0 {
        world.fail(
            "the budget",
            &format!("{} bytes are still held", budget.queued()),
        );
    }
    // Every queue holds the budget, every client and process holds a queue, and every call holds
    // its client.
    if Arc::strong_count(&budget) > 1 {
        world.fail(
            "the budget",
            &format!(
                "{} queues were never dropped",
                Arc::strong_count(&budget) - 1
            ),
        );
    }
    world
}

fn nobody_left(world: &World, daemon: &Daemon) {
    if daemon.connections.count().connections > 0 {
        world.fail(
            "the daemon",
            &format!(
                "{} clients are left",
                daemon.connections.count().connections
            ),
        );
    }
    for (id, server) in daemon.host.servers().iter() {
        for (_, session) in server.sessions() {
            if session.in_flight() > 0 {
                world.fail(
                    id,
                    &format!("{} calls are in flight for nobody", session.in_flight()),
                );
            }
        }
    }
}

/// Ends the daemon: whatever happens, it takes no longer than it may, and no process is left.
async fn end(world: &Arc<World>, daemon: &Arc<Daemon>, host: &Arc<ServerHost>) {
    let began = Instant::now();
    world.books().shutdown = Some(began);
    world.count("shutdown");
    world.note("the operator", "ends the daemon");
    daemon.end().await;
    world.note("the operator", "the daemon has ended");
    if began.elapsed() > MAX_TO_END {
        world.fail(
            "the daemon",
            &format!("took {} ms to end", began.elapsed().as_millis()),
        );
    }
    let (counted, real) = (host.running(), world.books().processes);
    if counted > 0 || real > 0 {
        world.fail(
            "the daemon",
            &format!("ended, but {real} processes run, {counted} by its own count"),
        );
    }
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")),
    )
}

fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.set(PANICS.get() + 1);
        before(info);
    }));
}

/// Ends the test if one seed makes no progress: a task that spins can be ended by nobody else on
/// its thread.
fn watch(running: Arc<Vec<AtomicU64>>) {
    std::thread::spawn(move || {
        let mut before: Vec<u64> = Vec::new();
        loop {
            std::thread::sleep(Duration::from_secs(120));
            let now: Vec<u64> = running
                .iter()
                .map(|seed| seed.load(Ordering::Relaxed))
                .collect();
            let mut stuck = now
                .iter()
                .zip(&before)
                .filter(|(now, before)| now == before && **now != u64::MAX);
            if let Some((seed, _)) = stuck.next() {
                eprintln!(
                    "seed {seed} makes no progress: COLIBRI_SIM_SEED={seed} cargo test -p colibri-mcpd --test simulation"
                );
                std::process::exit(1);
            }
            before = now;
        }
    });
}

fn is_short() -> bool {
    std::env::var_os("COLIBRI_SHORT").is_some()
}

#[test]
fn every_seed_keeps_the_promises() {
    count_panics();
    let first = number("COLIBRI_SIM_SEED");
    let count = number("COLIBRI_SIM_SEEDS").unwrap_or(match first {
        Some(_) => 1,
        None if is_short() => SEEDS / 20,
        None => SEEDS,
    });
    let seeds = first.unwrap_or(1)..first.unwrap_or(1) + count;
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(count as usize);
    let running: Arc<Vec<AtomicU64>> =
        Arc::new((0..threads).map(|_| AtomicU64::new(u64::MAX)).collect());
    watch(running.clone());
    let next = AtomicU64::new(seeds.start);
    let bad = Mutex::new(BTreeMap::new());
    let counts: Mutex<BTreeMap<&str, u64>> = Mutex::default();
    println!("seeds {} to {}", seeds.start, seeds.end - 1);
    std::thread::scope(|scope| {
        for mine in running.iter() {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    mine.store(seed, Ordering::Relaxed);
                    if seed >= seeds.end || bad.lock().unwrap().len() >= 5 {
                        mine.store(u64::MAX, Ordering::Relaxed);
                        return;
                    }
                    let report = run(seed);
                    if count == 1 {
                        println!("{}log hash {:016x}", report.log, report.hash);
                    }
                    for (what, how_often) in report.counts {
                        *counts.lock().unwrap().entry(what).or_default() += how_often;
                    }
                    if !report.failures.is_empty() {
                        bad.lock().unwrap().insert(seed, report.failures);
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    for (what, how_often) in &counts {
        println!("{how_often:>8}  {what}");
    }
    let bad = bad.into_inner().unwrap();
    for (seed, failures) in &bad {
        for failure in failures {
            eprintln!("seed {seed}: {failure}");
        }
        eprintln!(
            "again: COLIBRI_SIM_SEED={seed} cargo test -p colibri-mcpd --test simulation -- --nocapture"
        );
    }
    assert!(bad.is_empty(), "{} seeds broke a promise", bad.len());
    // A simulation in which nothing happens proves nothing.
    if count >= SEEDS {
        let least = counts.values().min().copied().unwrap_or_default();
        assert!(
            counts.len() >= 30 && least >= 10,
            "some things hardly ever happen: {counts:?}"
        );
        assert!(
            counts["call answered by its tool"] * 3 > counts["call of a server's tool"],
            "{counts:?}"
        );
    }
}

#[test]
fn a_seed_is_the_same_each_time() {
    for seed in 1..=if is_short() { 5 } else { 40 } {
        let (first, second) = (run(seed), run(seed));
        let differs = first
            .log
            .lines()
            .zip(second.log.lines())
            .find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.hash, second.hash, "seed {seed}");
    }
}
