//! Campaigns: two agents, many tasks, and whatever runs is killed at random. Each result is
//! recorded once, or the task failed and says why; none is lost, and nothing is left.
//!
//! What the daemon has at the end is held against what it told the agents, who note every order
//! before they give it and after its answer (see `fixture-agent`), and against the trail.

mod host;
#[cfg(target_os = "linux")]
mod jailed;
mod verdict;

pub use host::Host;
#[cfg(target_os = "linux")]
pub use jailed::Jailed;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::{Client, LEGACY, PATIENCE, wait_for};

/// The agent that the campaign has started whenever it does not run.
pub const KEPT: &str = "one";
/// The agent that is started by itself.
pub const AUTO: &str = "two";
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// How long the board may stand still: an agent that is frozen takes two graces to end.
const STANDSTILL: Duration = Duration::from_secs(180);

/// Where a campaign takes place.
pub trait Ground {
    /// The daemon, with its write gate and its external-call gate open. Its registry has the
    /// agents [`KEPT`] and [`AUTO`], which are [`fixture agents`](crate::campaign).
    fn daemon(&self) -> Command;
    /// Its socket.
    fn socket(&self) -> PathBuf;
    /// Its state.
    fn state(&self) -> PathBuf;
    /// What it has logged.
    fn log(&self) -> String;
    /// The directories with the orders that the agents noted.
    fn orders(&self) -> Vec<PathBuf>;
    /// The processes of agents.
    fn agents(&self) -> Vec<i32>;
    /// The processes between these and the daemon.
    fn supervisors(&self) -> Vec<i32>;
    /// The processes of hosted servers.
    fn servers(&self) -> Vec<i32>;
    /// What is there when no daemon runs, and should not be.
    fn left(&self) -> Vec<String>;
    /// Checks that `colibri-mcp trail verify` finds nothing wrong.
    fn assert_trail_is_sound(&self);
}

/// What a campaign is to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// What all that is random comes from.
    pub seed: u64,
    /// How many tasks there are.
    pub tasks: usize,
    /// How often something is killed.
    pub kills: usize,
}

/// What is killed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    Agent,
    Supervisor,
    Server,
    Stop,
    FrozenStop,
    Hung,
    Daemon,
    DaemonAndWait,
    DaemonTerm,
}

impl Blow {
    fn name(self) -> &'static str {
        match self {
            Blow::Agent => "SIGKILL of an agent",
            Blow::Supervisor => "SIGKILL of its supervisor",
            Blow::Server => "SIGKILL of a server",
            Blow::Stop => "stop by order",
            Blow::FrozenStop => "stop of a frozen one",
            Blow::Hung => "stop of one that hangs",
            Blow::Daemon => "SIGKILL of the daemon, started again at once",
            Blow::DaemonAndWait => "SIGKILL of the daemon, nothing left",
            Blow::DaemonTerm => "SIGTERM of the daemon",
        }
    }

    fn random(random: &mut Random) -> Blow {
        match random.below(100) {
            0..32 => Blow::Agent,
            32..55 => Blow::Supervisor,
            55..65 => Blow::Server,
            65..75 => Blow::Stop,
            75..78 => Blow::FrozenStop,
            78..88 => Blow::Daemon,
            88..95 => Blow::DaemonAndWait,
            _ => Blow::DaemonTerm,
        }
    }
}

/// A xorshift generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    pub(crate) fn one_of(&mut self, of: &[i32]) -> Option<i32> {
        of.get(self.below(of.len().max(1) as u64) as usize).copied()
    }
}

/// What a task says that is to be done.
fn words(random: &mut Random) -> &'static str {
    match random.below(100) {
        0..68 => "finish",
        68..76 => "twice",
        76..80 => "old",
        80..84 => "again",
        84..89 => "greedy",
        89..92 => "fail",
        92..95 => "release",
        95..97 => "crash",
        97..99 => "leave",
        _ => "hang",
    }
}

/// What came of a campaign.
#[derive(Debug, Default)]
pub struct Report {
    plan: Option<Plan>,
    blows: BTreeMap<Blow, u64>,
    /// Tasks by where they stand, and why those that failed did.
    pub by_status: BTreeMap<String, u64>,
    reasons: BTreeMap<String, u64>,
    /// Finishes that were tried, answered with success, and refused.
    orders: BTreeMap<String, u64>,
    /// Records of steps that were not made any more, because the daemon was killed in between.
    unmade: u64,
    took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Plan { seed, tasks, .. }) = self.plan {
            let took = self.took.as_secs_f64();
            writeln!(f, "campaign of seed {seed}: {tasks} tasks in {took:.1} s")?;
        }
        let mut row = |name: &str, count: u64| writeln!(f, "  {name:<52}{count:>8}");
        for (blow, count) in &self.blows {
            row(blow.name(), *count)?;
        }
        for (name, count) in self
            .by_status
            .iter()
            .chain(&self.reasons)
            .chain(&self.orders)
        {
            row(name, *count)?;
        }
        row(
            "records of steps that a kill of the daemon prevented",
            self.unmade,
        )
    }
}

/// Runs a campaign to its end.
///
/// # Panics
/// If a promise was broken.
pub fn run(ground: &dyn Ground, plan: Plan) -> Report {
    println!(
        "campaign: seed {}, {} tasks, {} kills",
        plan.seed, plan.tasks, plan.kills
    );
    let began = Instant::now();
    let mut campaign = Campaign {
        ground,
        random: Random::new(plan.seed),
        daemon: None,
        client: None,
        says: BTreeMap::new(),
        cancelled: BTreeSet::new(),
        hung: BTreeSet::new(),
        blows: BTreeMap::new(),
        daemon_kills: 0,
    };
    campaign.start();
    campaign.create(plan.tasks);
    campaign.fight(plan);
    campaign.end();
    // What is on the disk counts, not what a daemon remembers.
    campaign.start();
    let tasks = campaign.tasks();
    campaign.end();
    for (id, shown) in &tasks {
        let cancelled = shown["task"]["status"] == "cancelled";
        assert_eq!(cancelled, campaign.cancelled.contains(id), "{shown}");
    }
    ground.assert_trail_is_sound();
    let mut report = verdict::verdict(ground, &campaign.says, &tasks, campaign.daemon_kills);
    report.plan = Some(plan);
    let done = report
        .by_status
        .get("tasks done")
        .copied()
        .unwrap_or_default();
    assert!(
        done * 2 > plan.tasks as u64,
        "hardly anything is done: {report}\n{}",
        tail(&ground.log())
    );
    report.blows = std::mem::take(&mut campaign.blows);
    report.took = began.elapsed();
    report
}

struct Campaign<'a> {
    ground: &'a dyn Ground,
    random: Random,
    daemon: Option<Child>,
    client: Option<Client>,
    /// What each task says that is to be done.
    says: BTreeMap<u64, &'static str>,
    /// The tasks that were cancelled.
    cancelled: BTreeSet<u64>,
    /// The instances that were stopped because they hang.
    hung: BTreeSet<String>,
    blows: BTreeMap<Blow, u64>,
    daemon_kills: u64,
}

impl Campaign<'_> {
    /// Starts the daemon, and waits until it serves.
    fn start(&mut self) {
        self.client = None;
        let mut daemon = self
            .ground
            .daemon()
            .arg("--autospawn")
            // Who asks for a task again and again is answered a lot.
            .args(["--cost-mode", "max"])
            .spawn()
            .expect("the daemon can be started");
        let client = wait_for("the daemon's answer", || {
            let ended = daemon.try_wait().expect("waiting");
            assert!(
                ended.is_none(),
                "the daemon ended: {ended:?}\n{}",
                tail(&self.ground.log())
            );
            let mut client = Client::over(UnixStream::connect(self.ground.socket()).ok()?);
            // A child of the killed one that has not executed its program yet may still hold that
            // one's socket.
            client.request("ping", json!({}));
            client.read_lossy()?;
            Some(client)
        });
        self.daemon = Some(daemon);
        self.client.insert(client).initialize(LEGACY);
    }

    fn client(&mut self) -> &mut Client {
        self.client.as_mut().expect("a connection")
    }

    /// Ends the daemon in order, and waits until nothing is left.
    fn end(&mut self) {
        self.client = None;
        self.signal_daemon(Signal::SIGTERM);
        self.nothing_is_left();
    }

    /// Sends the daemon a signal and waits until it has ended.
    fn signal_daemon(&mut self, signal: Signal) {
        let mut daemon = self.daemon.take().expect("a daemon");
        kill(Pid::from_raw(daemon.id() as i32), signal).expect("the daemon runs");
        let status = wait_for("the daemon's end", || daemon.try_wait().expect("waiting"));
        let log = || tail(&self.ground.log());
        assert!(
            signal == Signal::SIGKILL || status.success(),
            "the daemon ended with {status}\n{}",
            log()
        );
    }

    fn nothing_is_left(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = self.ground.left();
            if left.is_empty() {
                return;
            }
            assert!(
                Instant::now() < until,
                "left: {left:#?}\n{}",
                tail(&self.ground.log())
            );
            sleep(LOOK);
        }
    }

    fn create(&mut self, tasks: usize) {
        for _ in 0..tasks {
            let (what, ms) = (words(&mut self.random), self.random.below(80));
            let priority = self.random.below(10);
            let description = json!({ "do": what, "ms": ms }).to_string();
            let task = json!({ "title": what, "description": description, "priority": priority });
            let created = self.client().call("colibri_create_task", task);
            let id = created["structuredContent"]["task"]["id"].as_u64();
            self.says.insert(id.expect("a task"), what);
        }
    }

    /// Kills until enough was killed, and waits until all tasks have ended.
    fn fight(&mut self, plan: Plan) {
        let (mut last, mut changed) = (Value::Null, Instant::now());
        let mut kills = 0;
        let mut next = Instant::now();
        loop {
            self.keep_agents();
            self.end_the_hung();
            self.change_ones_mind();
            let snapshot = self.client().call("colibri_snapshot", json!({}));
            let counts = snapshot["structuredContent"]["tasks_by_status"].clone();
            let ended =
                ["done", "failed", "cancelled"].map(|status| counts[status].as_u64().unwrap_or(0));
            if ended.iter().sum::<u64>() == plan.tasks as u64 {
                return;
            }
            if counts != last {
                (last, changed) = (counts, Instant::now());
            }
            assert!(
                changed.elapsed() < STANDSTILL,
                "nothing goes on: {last}\n{}",
                tail(&self.ground.log())
            );
            if kills < plan.kills && Instant::now() >= next {
                let blow = Blow::random(&mut self.random);
                kills += usize::from(self.strike(blow));
                next = Instant::now() + Duration::from_millis(self.random.below(200));
            }
            sleep(LOOK);
        }
    }

    fn instances(&mut self) -> Vec<Value> {
        let mut answer = self.client().ask("colibri/agents", json!({}));
        let instances = answer["result"]["instances"].take();
        let mut instances: Vec<Value> = serde_json::from_value(instances).expect("instances");
        instances.retain(|instance| instance["ended_at"].is_null());
        instances
    }

    /// Has the first agent started if it does not run, for a task of its own where that waits for
    /// somebody. A start that fails is tried again at the next look.
    fn keep_agents(&mut self) {
        if self
            .instances()
            .iter()
            .all(|instance| instance["agent"] != KEPT)
        {
            let task = self.any_task();
            let answer = self.client().ask(
                "colibri/spawn-agent",
                json!({ "agent": KEPT, "task": task }),
            );
            if answer.get("error").is_some() {
                self.client()
                    .ask("colibri/spawn-agent", json!({ "agent": KEPT }));
            }
        }
    }

    fn any_task(&mut self) -> u64 {
        let at = self.random.below(self.says.len() as u64) as usize;
        self.says.keys().nth(at).copied().unwrap_or_default()
    }

    /// Cancels a task now and then, whoever has it.
    fn change_ones_mind(&mut self) {
        if self.random.below(100) < 2 {
            let task = self.any_task();
            let result = self
                .client()
                .call("colibri_cancel_task", json!({ "task": task }));
            if result["isError"] != true {
                self.cancelled.insert(task);
            }
        }
    }

    /// Stops those whose task has them hang.
    fn end_the_hung(&mut self) {
        let started = self
            .client()
            .call("colibri_list_tasks", json!({ "status": "started" }));
        let tasks = started["structuredContent"]["tasks"].as_array().cloned();
        for task in tasks.into_iter().flatten() {
            let session = &task["claimed_session"];
            if task["title"] == "hang"
                && self.hung.insert(session.to_string())
                && self.stop(session)
            {
                *self.blows.entry(Blow::Hung).or_default() += 1;
            }
        }
    }

    fn stop(&mut self, session: &Value) -> bool {
        let answer = self
            .client()
            .ask("colibri/stop-agent", json!({ "id": session }));
        answer.get("error").is_none()
    }

    /// Kills something. `false`: it was not there.
    fn strike(&mut self, blow: Blow) -> bool {
        let hit = match blow {
            Blow::Agent => self.kill_one(self.ground.agents(), Signal::SIGKILL),
            Blow::Supervisor => self.kill_one(self.ground.supervisors(), Signal::SIGKILL),
            Blow::Server => self.kill_one(self.ground.servers(), Signal::SIGKILL),
            Blow::Stop | Blow::FrozenStop | Blow::Hung => {
                let instances = self.instances();
                if blow == Blow::FrozenStop {
                    for pid in self.ground.agents() {
                        let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
                    }
                }
                let at = self.random.below(instances.len().max(1) as u64) as usize;
                let stops = instances.get(at).map(|instance| instance["id"].clone());
                let all = instances.iter().map(|instance| instance["id"].clone());
                // All that are frozen are stopped: they would hold their tasks for ever.
                let stopped: Vec<Value> = if blow == Blow::FrozenStop {
                    all.collect()
                } else {
                    stops.into_iter().collect()
                };
                stopped.iter().filter(|id| self.stop(id)).count() > 0
            }
            Blow::Daemon | Blow::DaemonAndWait => {
                self.daemon_kills += 1;
                self.client = None;
                self.signal_daemon(Signal::SIGKILL);
                if blow == Blow::DaemonAndWait {
                    self.nothing_runs();
                }
                self.start();
                true
            }
            Blow::DaemonTerm => {
                self.end();
                self.start();
                true
            }
        };
        *self.blows.entry(blow).or_default() += u64::from(hit);
        hit
    }

    /// A daemon that is killed leaves no process behind; what else it leaves, the next one removes.
    fn nothing_runs(&self) {
        let ground = self.ground;
        wait_for("the end of all that the killed daemon had started", || {
            let left = [ground.agents(), ground.supervisors(), ground.servers()].concat();
            left.is_empty().then_some(())
        });
    }

    fn kill_one(&mut self, of: Vec<i32>, signal: Signal) -> bool {
        let one = self.random.one_of(&of);
        one.is_some_and(|pid| kill(Pid::from_raw(pid), signal).is_ok())
    }

    /// Each task as it is at the end, with its result.
    fn tasks(&mut self) -> BTreeMap<u64, Value> {
        let ids: Vec<u64> = self.says.keys().copied().collect();
        let mut tasks = BTreeMap::new();
        for id in ids {
            let mut answer = self
                .client()
                .call("colibri_get_task", json!({ "task": id }));
            tasks.insert(id, answer["structuredContent"].take());
        }
        tasks
    }
}

impl Drop for Campaign<'_> {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // It has failed already.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}
