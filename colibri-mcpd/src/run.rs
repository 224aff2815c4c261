//! The daemon's start and end: command line, privileges, trail, servers, socket, signals.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::agents::{self, AgentRoster, TaskAgents};
use crate::board::Scheduler;
use crate::catalog::ServerHost;
use crate::config::{DaemonConfig, DaemonFlags, without_url};
use crate::daemon::idle;
use crate::daemon::sources::{self, SourceFiles, SourceMetadata};
use crate::daemon::usage;
use crate::daemon::{Daemon, MAX_QUEUED};
use crate::inbound::{AgentDoors, Listener, ScheduledCalls, ScriptConnections, SummaryCalls};
use crate::log;
use crate::model::{self, ModelRelays};
use crate::notices::Webhook;
use crate::ops::{check, metrics, reload, witness};
use crate::registry::secrets::SecretStore;
use crate::relay::pending_work::Tickets;
use crate::relay::request_state::RequestStates;
use crate::relay::{CallMetrics, CallRules, Chain, Recorder};
use crate::results::Results;
use crate::scripts;
use crate::servers;
use crate::summaries::SummaryMaker;
use colibri_api::paths::SERVICE;
use colibri_api::{PrivMode, paths};
use colibri_confine::{
    LaunchSettings, Spawner, SystemSpawner, as_user, check_contract, harden, supervisor,
};
use colibri_outbound::oauth;
use colibri_peer::ByteBudget;
use colibri_policy::{ApprovalQueue, BoardHosts, Clients, DEFAULT_EXPIRY, Gate, UserQuotas};
use colibri_store::cost_ledger::{self, CostLedger};
use colibri_store::{Database, Fleet, HostIdentity};
use colibri_trail::{self as trail, Trail, TrailError, TrailEvent, TrailOptions};

/// Exit status: the configuration is bad (EX_CONFIG of sysexits(3)).
const EXIT_CONFIG: u8 = 78;
/// Exit status: the system refuses something (EX_OSERR).
const EXIT_SYSTEM: u8 = 71;
/// Exit status: the daemon must not run with these privileges (EX_NOPERM).
const EXIT_PRIVILEGE: u8 = 77;
/// Exit status: another daemon is there, or the socket cannot be made (EX_UNAVAILABLE).
const EXIT_UNAVAILABLE: u8 = 69;
/// The longest wait for an earlier daemon of the same person to end.
const PREDECESSOR: Duration = Duration::from_secs(15);

/// The whole of `colibri-mcpd`: reads its command line, serves until told to end, and returns the
/// exit status.
pub fn run_cli(arguments: Vec<OsString>) -> ExitCode {
    if arguments
        .get(1)
        .is_some_and(|first| first == supervisor::ARGUMENT)
    {
        return supervisor::main(arguments.into_iter().skip(2));
    }
    if arguments
        .get(1)
        .is_some_and(|first| first == as_user::ARGUMENT)
    {
        return as_user::main(arguments.into_iter().skip(2));
    }
    let flags = match DaemonFlags::of_command_line(&arguments) {
        Ok(flags) => flags,
        Err(error) => {
            let status = if error.use_stderr() { 64 } else { 0 };
            // Output that cannot be printed has nowhere else to go.
            let _ = without_url(error).print();
            return ExitCode::from(status);
        }
    };
    let check = flags.check;
    if let Some(user) = &flags.as_user {
        return as_user::again(user, &arguments);
    }
    let config = match flags.resolve() {
        Ok(config) => config,
        Err(error) => return fail(EXIT_CONFIG, &format!("{error:#}")),
    };
    if check {
        return match check::configuration(&config) {
            Ok(text) => {
                println!("{text}");
                ExitCode::SUCCESS
            }
            Err(faults) => fail(EXIT_CONFIG, &faults.join("\ncolibri-mcpd: ")),
        };
    }
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, message)) => fail(status, &message),
    }
}

fn fail(status: u8, message: &str) -> ExitCode {
    eprintln!("colibri-mcpd: {message}");
    ExitCode::from(status)
}

/// An exit status (sysexits(3)) and what to say with it.
pub type RunFailure = (u8, String);

fn configuration_failure(error: anyhow::Error) -> RunFailure {
    (EXIT_CONFIG, format!("{error:#}"))
}

fn serve(config: DaemonConfig) -> Result<(), RunFailure> {
    let system = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| (EXIT_SYSTEM, format!("{what}: {error}"))
    };
    harden::keep_little_of_what_is_freed();
    harden::restrict_umask();
    if config.consent.is_some() {
        // It outlives who started it: a terminal that is closed does not end it. A process that
        // leads a session is alone.
        let _ = nix::unistd::setsid();
    }
    let to = match &config.log_file {
        Some(path) => {
            make_state_directory(&config.state_dir)
                .map_err(system(&config.state_dir.display().to_string()))?;
            let own = paths::Private {
                registry: config.registry.clone(),
                state_dir: config.state_dir.clone(),
                ..paths::private()
            };
            own.check().map_err(|why| (EXIT_CONFIG, why))?;
            log::To::File(path)
        }
        None if config.syslog => log::To::Syslog,
        None => log::To::Stderr,
    };
    log::start(config.log_level, &to).map_err(system("logging"))?;
    if let Some(excess) =
        harden::excess_privilege().map_err(system("reading the process's privileges"))?
    {
        if !config.allow_root {
            return Err((
                EXIT_PRIVILEGE,
                format!("{excess}; --allow-root overrides this, for containers and tests"),
            ));
        }
        warn!("{excess}; going on because of --allow-root");
    }
    // Whoever started us may have blocked what tells us to end or to reload.
    SigSet::empty()
        .thread_set_mask()
        .map_err(|error| (EXIT_SYSTEM, format!("unblocking signals: {error}")))?;
    harden::harden().map_err(system("making the process untraceable"))?;
    raise_descriptor_limit();
    make_state_directory(&config.state_dir)
        .map_err(system(&config.state_dir.display().to_string()))?;
    let locked = |error| match error {
        TrailError::Locked(_) => (
            EXIT_UNAVAILABLE,
            format!(
                "a daemon is already running on the state directory {}: stop it first{}, or give this one a --state-dir and \
                 --socket of its own",
                config.state_dir.display(),
                match config.state_dir == Path::new(SERVICE.state) {
                    true => format!(" ({})", SERVICE.stop),
                    false => String::new(),
                }
            ),
        ),
        error => (EXIT_CONFIG, error.to_string()),
    };
    let lock = take_lock(&config).map_err(locked)?;
    let sources = read_sources(&config)?;
    // Before all that writes: what is kept of results may have the last of the space.
    let results = Results::open(&config.state_dir, sources.1.clients.limits());
    let results =
        Arc::new(results.map_err(|error| (EXIT_CONFIG, format!("kept results: {error}")))?);
    let options = TrailOptions {
        state_dir: config.state_dir.clone(),
        sync: config.trail_sync,
        witness: Arc::new(witness::SyslogWitness::new()),
        notify: |severity, what| match severity {
            trail::NoticeSeverity::Error => error!("{what}"),
            trail::NoticeSeverity::Warning => warn!("{what}"),
            trail::NoticeSeverity::Info => info!("{what}"),
        },
        limits: trail::SegmentLimits::default(),
    };
    let trail = Trail::open_beside(results.clone(), lock, options).map_err(locked)?;
    runtime()
        .map_err(system("starting the runtime"))?
        .block_on(run(config, sources, Recorder::Trail(trail), results))
}

/// The runtime that the daemon runs on.
///
/// # Errors
/// The system gives no threads.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(32)
        .enable_all()
        .build()
}

/// Each client is a descriptor, each server three.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        warn!("the limit of open files stays as it is: {error}");
    }
}

fn make_state_directory(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Reads registry and client policy.
///
/// # Errors
/// The exit status, and what is wrong with them.
pub fn read_sources(config: &DaemonConfig) -> Result<(SourceMetadata, SourceFiles), RunFailure> {
    let sources = SourceMetadata::recall(config).map_err(configuration_failure)?;
    let files = sources.read(config).map_err(configuration_failure)?;
    Ok((sources, files))
}

/// Serves until told to end.
///
/// # Errors
/// The exit status, and what to say with it.
pub async fn run(
    config: DaemonConfig,
    (sources, files): (SourceMetadata, SourceFiles),
    recorder: Recorder,
    results: Arc<Results>,
) -> Result<(), RunFailure> {
    let secrets = Arc::new(SecretStore::beside(&config.registry));
    let webhook = config
        .webhook
        .as_ref()
        .map(|settings| Webhook::open(settings, &secrets));
    let webhook = webhook.transpose().map_err(configuration_failure)?;
    sources.remember(&config, &files);
    let SourceFiles {
        clients,
        registry: loaded,
        gates,
        hosts,
    } = files;
    let limits = *clients.limits();
    let recorder = Arc::new(recorder);
    let store = Arc::new(open_store(&config, &clients, hosts, &recorder)?);
    let pins = sources::open_pins(&config).map_err(|error| (EXIT_CONFIG, error.to_string()))?;
    let spawner =
        SystemSpawner::new(config.priv_mode).map_err(|error| (EXIT_SYSTEM, error.to_string()))?;
    if loaded.needs_helper() {
        prepare_helper(&spawner, config.priv_mode).await;
    }
    reload::note_clients(&clients);
    if let Some(fault) = check::socket_group(&config) {
        warn!("{fault}");
    }
    recorder
        .event(TrailEvent::Start {
            version: env!("CARGO_PKG_VERSION"),
        })
        .map_err(|error| (EXIT_SYSTEM, error.to_string()))?;
    let states =
        RequestStates::open(&config.state_dir).map_err(|error| (EXIT_CONFIG, error.to_string()))?;
    let rules = Arc::new(CallRules {
        gates: ArcSwap::from_pointee(gates),
        clients: ArcSwap::from_pointee(clients),
    });
    let (budget, ledger) = (
        Arc::new(ByteBudget::new(MAX_QUEUED)),
        Arc::new(CostLedger::default()),
    );
    let models = {
        let recorder = recorder.clone();
        let record: Box<model::RecordEvent> = Box::new(move |event| Ok(recorder.event(event)?));
        ModelRelays::new(record, ledger.clone(), budget.clone(), secrets.clone())
    };
    let spawner: Arc<dyn Spawner> = Arc::new(spawner);
    let agents = AgentRoster::new(agents::AgentDependencies {
        spawner: spawner.clone(),
        recorder: recorder.clone(),
        rules: rules.clone(),
        results: results.clone(),
        secrets: secrets.clone(),
        socket: config.socket.clone(),
        state_dir: config.state_dir.clone(),
        store: store.clone(),
        models: Arc::new(models),
        autospawn: config.autospawn,
    });
    let agents = agents.map_err(|error| {
        (
            EXIT_SYSTEM,
            format!("{}: {error}", config.state_dir.display()),
        )
    })?;
    let chain = Arc::new(Chain {
        recorder,
        rules,
        metrics: CallMetrics::default(),
        ledger,
        approvals: ApprovalQueue::new(DEFAULT_EXPIRY),
        states,
        tickets: Tickets::default(),
        results,
        board: agents.board().clone(),
        flows: Arc::default(),
        catalog: OnceLock::new(),
    });
    let shares = Arc::new(UserQuotas::new(limits.quota(config.cost_mode)));
    usage::recall(&store, &shares).map_err(|error| (EXIT_CONFIG, error.to_string()))?;
    let host = ServerHost::new(servers::ServerDependencies {
        spawner,
        store: store.clone(),
        chain: chain.clone(),
        budget: budget.clone(),
        max_frame: limits.message_bytes,
        secrets: secrets.clone(),
        tokens: Arc::new(oauth::TokenStore::below(&config.state_dir)),
        call_timeout: config.call_timeout,
        pins: Some(Arc::new(pins)),
        shares,
    });
    reload::apply(&host, &agents, &loaded);
    let signals = Signals::new().map_err(|error| (EXIT_SYSTEM, format!("signals: {error}")))?;
    let listener =
        Listener::bind(&config.socket).map_err(|error| (EXIT_UNAVAILABLE, error.to_string()))?;
    let bound = config.metrics_socket.as_deref().map(Listener::bind);
    let metrics_listener = bound
        .transpose()
        .map_err(|error| (EXIT_UNAVAILABLE, error.to_string()))?;
    info!(socket = %config.socket.display(), write = gates.is_open(Gate::Write), external_call = config.external_call, "listening");
    let daemon = Daemon::new(
        config,
        sources,
        chain,
        (host, agents),
        store,
        budget,
        AgentDoors::beside,
    );
    let flows = daemon.chain.flows.clone();
    let begun = daemon.board.begin_at_start(move |task| flows.recall(task));
    begun.map_err(|error| (EXIT_SYSTEM, error.to_string()))?;
    let starter = TaskAgents::new(daemon.agents.clone(), daemon.doors.clone());
    let scheduler = Scheduler::new(daemon.board.clone(), starter, ScheduledCalls::new(&daemon));
    let program = std::env::current_exe()
        .map_err(|error| (EXIT_SYSTEM, format!("this program's path: {error}")))?;
    let settings = LaunchSettings {
        // A script has nothing to clear up.
        grace: Duration::from_millis(100),
        ..LaunchSettings::new(daemon.config.priv_mode, program.clone())
    };
    let (spawner, connections) = (
        SystemSpawner::with(settings),
        ScriptConnections::new(&daemon),
    );
    daemon.scripts.begin(
        Arc::new(spawner),
        connections,
        scripts::program_beside(&program),
    );
    daemon.learn();
    // What is made in the background ends when this is dropped.
    let mut background = JoinSet::new();
    if let Some(model) = &daemon.config.summaries {
        let calls = SummaryCalls::new(&daemon);
        let maker = SummaryMaker::new(&daemon.summaries, &daemon.store, &daemon.host, calls, model);
        background.spawn(maker.work(daemon.host.changes().come()));
    }
    let (agents, mut leases) = (
        daemon.agents.clone(),
        daemon.store.board().lease().numbers(),
    );
    background.spawn(async move {
        while leases.changed().await.is_ok() {
            agents.end_without_lease();
        }
    });
    if let Some(webhook) = webhook {
        background.spawn(webhook.work(daemon.notices.watch()));
    }
    let readers = metrics_listener
        .as_ref()
        .map(|listener| async || listener.next().await);
    tokio::select! {
        () = listener.accept(&daemon) => {}
        () = metrics::serve(readers, &daemon) => {}
        () = scheduler.run() => {}
        () = daemon.keep_spending_always() => {}
        () = keep_costs(&daemon) => {}
        () = daemon.notice_always() => {}
        () = daemon.wake_always() => {}
        () = daemon.chain.results.clone().sweep() => {}
        () = daemon.told_to_end.notified() => info!("told to end by its user"),
        name = signals.wait(&daemon) => info!(signal = name, "told to end"),
        why = idle::is_over(|| daemon.connections.load(), || daemon.agents.count(), daemon.config.end_idle) => info!(why, "nothing to do any more"),
    }
    drop((listener, metrics_listener, background, scheduler));
    daemon.end().await;
    daemon.store.board().leave();
    if let Err(error) = daemon.keep_spending() {
        error!("what users have spent since a while ago was not kept: {error}");
    }
    if let Err(error) = write_costs(&daemon).await {
        error!("the last costs were not kept: {error:#}");
    }
    if let Err(error) = daemon.chain.close() {
        error!("the trail was not sealed: {error}");
    }
    info!("ended");
    Ok(())
}

/// Opens the store. Here, and nowhere else, it is chosen where the board is: in the store's own
/// file, or, with a board's address, in a PostgreSQL that many hosts share.
fn open_store(
    config: &DaemonConfig,
    clients: &Clients,
    hosts: BoardHosts,
    recorder: &Arc<Recorder>,
) -> Result<Database, RunFailure> {
    let store =
        Database::open(&config.state_dir).map_err(|error| (EXIT_CONFIG, error.to_string()))?;
    let Some((address, name)) = config.board.clone() else {
        return Ok(store);
    };
    // Rows are signed with the trail's key.
    let Recorder::Trail(trail) = &**recorder else {
        let why = "a board of many hosts needs a trail";
        return Err((EXIT_CONFIG, why.to_owned()));
    };
    let signer = trail.signer().clone();
    let fleet = Fleet::start(address, HostIdentity { name, signer });
    let fleet = fleet.map_err(configuration_failure)?;
    let store = store.with_fleet(fleet.clone());
    // Before this host is a witness: it then looks at who counts.
    store.board().map_persons(clients.persons());
    store.board().count_hosts(reload::counted(hosts));
    let trail = recorder.clone();
    let sealed = move || match &*trail {
        Recorder::Trail(trail) => {
            let status = trail.status();
            let sealed = status.sealed.unwrap_or(0);
            (sealed == 0 || sealed < status.synced).then_some(sealed)
        }
        Recorder::Off => None,
    };
    let began = fleet.witness_each_other(&config.state_dir, sealed);
    began.map_err(|error| (EXIT_SYSTEM, error.to_string()))?;
    Ok(store)
}

/// Writes what was counted to the store, again and again.
async fn keep_costs(daemon: &Arc<Daemon>) {
    let mut was_written = true;
    loop {
        tokio::time::sleep(cost_ledger::INTERVAL).await;
        let written = write_costs(daemon).await;
        match &written {
            // Said once: what cannot be written now cannot be for long.
            Err(error) if was_written => warn!("costs are counted and not yet kept: {error:#}"),
            Ok(()) if !was_written => info!("costs are kept again"),
            _ => {}
        }
        was_written = written.is_ok();
    }
}

async fn write_costs(daemon: &Arc<Daemon>) -> anyhow::Result<()> {
    let daemon = daemon.clone();
    // The disk is waited for: not on a thread that serves clients.
    let written =
        tokio::task::spawn_blocking(move || daemon.chain.ledger.write(&daemon.store)).await;
    Ok(written??)
}

/// Takes the trail's lock. A private daemon waits for the one before it, which may be ending its
/// servers: the command that starts it lets only one come up at a time.
fn take_lock(config: &DaemonConfig) -> Result<trail::TrailLock, TrailError> {
    let taken = trail::TrailLock::take(&config.state_dir);
    if config.consent.is_none() || !matches!(taken, Err(TrailError::Locked(_))) {
        return taken;
    }
    info!("an earlier daemon has not ended yet: waiting for it");
    let until = Instant::now() + PREDECESSOR;
    loop {
        std::thread::sleep(Duration::from_millis(20));
        match trail::TrailLock::take(&config.state_dir) {
            Err(TrailError::Locked(_)) if Instant::now() < until => {}
            taken => return taken,
        }
    }
}

/// Sees to it that the helper is ours, and has it tear down what an earlier daemon left. A helper
/// that cannot be used stops no other server: its own ones fail with the reason.
async fn prepare_helper(spawner: &SystemSpawner, mode: PrivMode) {
    if let Err(error) = check_contract(mode).await {
        return warn!("jailed servers cannot be started: {error}");
    }
    if let Err(error) = spawner.sweep().await {
        warn!("what an earlier daemon left was not torn down: {error}");
    }
}

/// The signals that the daemon knows.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the order to end; reloads as often as told meanwhile.
    async fn wait(mut self, daemon: &Arc<Daemon>) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hangup.recv() => {
                    let daemon = daemon.clone();
                    // Files are read: not on a thread that serves clients.
                    let _ = tokio::task::spawn_blocking(move || reload::reload(&daemon)).await;
                }
            }
        }
    }
}
