//! The campaign of many hosts: three daemons on one PostgreSQL, agents and a person who work on
//! tasks, and daemons, instances, connections, clocks and the database itself broken at random. No
//! task is lost, and none is done twice.
//!
//! The verdict is [`check()`]'s, which reads the board and the three trails alone.

mod cable;
mod check;
mod clock;
mod host;

pub use cable::{Cable, CableBreak};
pub use check::{BoardReport, JOURNAL, TaskFault, TaskFaultKind, check};
pub use clock::{faketime, wrong_clock};

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use serde_json::json;

use crate::campaign::Random;
use crate::{Postgres, wait_for};
use host::{FleetHost, PersonClient, hosts};

/// New tasks of a round.
const TASKS: u64 = 4;
/// Threads that are the person at work.
const PERSONS: u64 = 6;
/// The number of tasks that have not ended from which on nothing is broken until there are fewer.
const BACKLOG: u64 = 40;
/// How long the board may stand still while nothing is broken.
const STANDSTILL: Duration = Duration::from_secs(240);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Clocks: hours forward and back, and the right time.
const CLOCKS: [&str; 7] = ["+0", "+2h", "-2h", "+25h", "-25h", "+400d", "-400d"];

/// What a campaign is to do.
#[derive(Debug, Clone, Copy)]
pub struct FleetPlan {
    /// What all that is random comes from.
    pub seed: u64,
    /// The number of rounds.
    pub rounds: u64,
    /// The time after which no further round begins.
    pub time: Duration,
}

/// What is broken in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    DaemonKill,
    DaemonEnd,
    DaemonStop,
    AgentKill,
    AgentStop,
    DatabaseKill,
    DatabaseEnd,
    DatabaseStop,
    Terminate,
    Cut(u64),
    Hold,
    Clock,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::DaemonKill => "SIGKILL of a daemon, started again",
            Fault::DaemonEnd => "SIGTERM of a daemon, started again",
            Fault::DaemonStop => "SIGSTOP and SIGCONT of a daemon",
            Fault::AgentKill => "SIGKILL of an agent's instance",
            Fault::AgentStop => "SIGSTOP and SIGCONT of an instance",
            Fault::DatabaseKill => "SIGKILL of the database, started again",
            Fault::DatabaseEnd => "SIGINT of the database, started again",
            Fault::DatabaseStop => "SIGSTOP and SIGCONT of the database",
            Fault::Terminate => "pg_terminate_backend of connections",
            Fault::Cut(0) => "connection cut within a request",
            Fault::Cut(1) => "connection cut within an answer",
            Fault::Cut(_) => "connection cut behind a COMMIT",
            Fault::Hold => "connections of a host held up",
            Fault::Clock => "clock of a daemon set",
        }
    }

    fn random(random: &mut Random) -> Fault {
        match random.below(100) {
            0..6 => Fault::DaemonKill,
            6..9 => Fault::DaemonEnd,
            9..20 => Fault::DaemonStop,
            20..36 => Fault::AgentKill,
            36..46 => Fault::AgentStop,
            46..49 => Fault::DatabaseKill,
            49..51 => Fault::DatabaseEnd,
            51..55 => Fault::DatabaseStop,
            55..62 => Fault::Terminate,
            62..82 => Fault::Cut(random.below(3)),
            82..88 => Fault::Hold,
            _ => Fault::Clock,
        }
    }
}

/// The end of a fault.
#[derive(Debug, Clone, Copy)]
enum Repair {
    Start(usize),
    Continue(usize),
    ContinueAgent(i32),
    StartDatabase,
    ContinueDatabase,
}

/// What came of a campaign.
#[derive(Debug)]
pub struct FleetReport {
    plan: FleetPlan,
    /// Rounds that were done.
    pub rounds: u64,
    faults: BTreeMap<Fault, u64>,
    breaks: u64,
    took: Duration,
    /// What the check of board and trails found.
    pub board: BoardReport,
}

impl fmt::Display for FleetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, took) = (self.plan.seed, self.took.as_secs_f64());
        writeln!(
            f,
            "campaign of seed {seed}: {} rounds in {took:.0} s",
            self.rounds
        )?;
        for (fault, count) in &self.faults {
            writeln!(f, "  {:<44}{count:>6}", fault.name())?;
        }
        writeln!(f, "  {:<44}{:>6}", "connections that broke so", self.breaks)?;
        write!(f, "{}", self.board)
    }
}

/// Runs a campaign, and checks what came of it.
///
/// # Panics
/// If a host or the board does not recover, a daemon ends by itself, or a trail is damaged.
pub fn run(plan: FleetPlan) -> FleetReport {
    println!(
        "campaign: seed {}, {} rounds, at most {:?}",
        plan.seed, plan.rounds, plan.time
    );
    let faketime = faketime().expect("libfaketime is installed");
    let postgres = Postgres::new();
    let own = User::from_uid(Uid::effective())
        .expect("users")
        .expect("an account")
        .name;
    postgres.database("board", &own);
    let mut campaign = Campaign {
        random: Random::new(plan.seed),
        hosts: hosts(&postgres, &faketime),
        postgres,
        is_frozen: false,
        repairs: Vec::new(),
        faults: BTreeMap::new(),
        new_tasks: AtomicU64::new(0).into(),
    };
    let began = Instant::now();
    for host in &mut campaign.hosts {
        host.start();
        wait_for("the board", || {
            host.log().contains("the board is there").then_some(())
        });
    }
    campaign.postgres.sql("board", JOURNAL);
    let (is_over, new_tasks) = (AtomicBool::new(false), campaign.new_tasks.clone());
    let sockets: Vec<PathBuf> = campaign
        .hosts
        .iter()
        .map(|host| host.place.socket())
        .collect();
    let mut rounds = 0;
    scope(|scope| {
        for number in 0..PERSONS {
            let (sockets, new_tasks, is_over) = (&sockets, &*new_tasks, &is_over);
            scope.spawn(move || {
                let random = Random::new(plan.seed.wrapping_add(number + 1));
                Person {
                    random,
                    sockets,
                    claims: Vec::new(),
                }
                .work(new_tasks, is_over);
            });
        }
        // The persons end whatever becomes of the campaign.
        let end = Finally(&is_over);
        while rounds < plan.rounds && began.elapsed() < plan.time {
            campaign.round();
            rounds += 1;
            if rounds % 50 == 0 {
                println!("{rounds} rounds in {} s", began.elapsed().as_secs());
            }
        }
        drop(end);
    });
    campaign.end();
    let trails: Vec<PathBuf> = campaign
        .hosts
        .iter()
        .map(|host| host.place.trail_directory())
        .collect();
    let board = check(&|sql| campaign.postgres.try_sql("board", sql), &trails)
        .expect("a board that can be read");
    FleetReport {
        plan,
        rounds,
        breaks: campaign.hosts.iter().map(|host| host.cable.breaks()).sum(),
        faults: std::mem::take(&mut campaign.faults),
        took: began.elapsed(),
        board,
    }
}

/// Says that the campaign is over once it is dropped.
struct Finally<'a>(&'a AtomicBool);

impl Drop for Finally<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Campaign {
    random: Random,
    hosts: Vec<FleetHost>,
    postgres: Postgres,
    is_frozen: bool,
    repairs: Vec<(Instant, Repair)>,
    faults: BTreeMap<Fault, u64>,
    /// Tasks that are to be created.
    new_tasks: std::sync::Arc<AtomicU64>,
}

impl Campaign {
    fn round(&mut self) {
        self.new_tasks.fetch_add(TASKS, Ordering::Relaxed);
        for _ in 0..=self.random.below(2) {
            loop {
                let fault = Fault::random(&mut self.random);
                if self.inject(fault) {
                    *self.faults.entry(fault).or_default() += 1;
                    break;
                }
            }
        }
        let pause = Duration::from_millis(200 + self.random.below(1_500));
        self.tend(Instant::now() + pause);
        let (mut last, mut changed) = (u64::MAX, Instant::now());
        while let Some(open) = self.open_tasks().filter(|open| *open > BACKLOG) {
            if open != last || !self.repairs.is_empty() {
                (last, changed) = (open, Instant::now());
            }
            assert!(
                changed.elapsed() < STANDSTILL,
                "{open} tasks stand still:\n{}",
                self.logs()
            );
            self.tend(Instant::now() + LOOK * 3);
        }
    }

    fn logs(&self) -> String {
        let tasks =
            "SELECT id, status, claim, claimed_session, for_session, reason FROM colibri.tasks
            WHERE status NOT IN ('done', 'failed', 'cancelled') LIMIT 20";
        let tasks = self.postgres.try_sql("board", tasks);
        let hosts = self
            .hosts
            .iter()
            .map(|host| format!("{}:\n{}\n", host.name, host.log()));
        format!("{tasks:#?}\n{}", hosts.collect::<String>())
    }

    /// Repairs what is due, until then.
    fn tend(&mut self, until: Instant) {
        loop {
            let now = Instant::now();
            let (due, later) = std::mem::take(&mut self.repairs)
                .into_iter()
                .partition(|(at, _)| *at <= now);
            self.repairs = later;
            let due: Vec<(Instant, Repair)> = due;
            for (_, repair) in due {
                self.repair(repair);
            }
            for number in 0..self.hosts.len() {
                let has_ended = self.hosts[number].has_ended();
                assert!(
                    !has_ended,
                    "a daemon ended by itself:\n{}",
                    self.hosts[number].log()
                );
            }
            if now >= until {
                return;
            }
            sleep(LOOK.min(until - now));
        }
    }

    fn later(&mut self, ms: u64, repair: Repair) {
        self.repairs
            .push((Instant::now() + Duration::from_millis(ms), repair));
    }

    /// A time for which something stands still: mostly short, at times longer than a lease.
    fn while_ms(&mut self) -> u64 {
        match self.random.below(100) {
            0..65 => 100 + self.random.below(2_500),
            65..90 => 2_500 + self.random.below(7_500),
            _ => 11_000 + self.random.below(10_000),
        }
    }

    fn has_database(&self) -> bool {
        !self.is_frozen
            && !self
                .repairs
                .iter()
                .any(|(_, repair)| matches!(repair, Repair::StartDatabase))
    }

    /// Breaks something. `false`: it is not there, or broken already.
    fn inject(&mut self, fault: Fault) -> bool {
        let at = self.random.below(self.hosts.len() as u64) as usize;
        let time = self.while_ms();
        let is_up = self.hosts[at].is_there() && !self.hosts[at].is_stopped;
        match fault {
            Fault::DaemonKill | Fault::DaemonEnd if is_up => {
                let signal = if fault == Fault::DaemonKill {
                    Signal::SIGKILL
                } else {
                    Signal::SIGTERM
                };
                self.hosts[at].signal(signal);
                self.later(time / 4, Repair::Start(at));
            }
            Fault::DaemonStop if is_up => {
                self.hosts[at].signal(Signal::SIGSTOP);
                self.later(time, Repair::Continue(at));
            }
            Fault::AgentKill | Fault::AgentStop => {
                let Some(pid) = self.random.one_of(&self.hosts[at].agents()) else {
                    return false;
                };
                let stops = fault == Fault::AgentStop;
                let signal = if stops {
                    Signal::SIGSTOP
                } else {
                    Signal::SIGKILL
                };
                if kill(Pid::from_raw(pid), signal).is_err() {
                    return false;
                }
                if stops {
                    self.later(time, Repair::ContinueAgent(pid));
                }
            }
            Fault::DatabaseKill | Fault::DatabaseEnd if self.has_database() => {
                let signal = if fault == Fault::DatabaseKill {
                    Signal::SIGKILL
                } else {
                    Signal::SIGINT
                };
                self.postgres.signal(signal);
                self.later(time / 2, Repair::StartDatabase);
            }
            Fault::DatabaseStop if self.has_database() => {
                self.postgres.freeze(true);
                self.is_frozen = true;
                self.later(time, Repair::ContinueDatabase);
            }
            Fault::Terminate if self.has_database() => {
                let some = ["random() < 0.4", "TRUE"][self.random.below(2) as usize];
                let sql = format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'colibri-mcpd' AND {some}"
                );
                return self.postgres.try_sql("board", &sql).is_ok();
            }
            Fault::Cut(place) => {
                let places = [CableBreak::Request, CableBreak::Answer, CableBreak::Commit];
                self.hosts[at].cable.break_at(places[place as usize]);
            }
            Fault::Hold => self.hosts[at].cable.hold(Duration::from_millis(time)),
            Fault::Clock => {
                let clock = CLOCKS[self.random.below(CLOCKS.len() as u64) as usize];
                self.hosts[at].set_clock(clock);
            }
            _ => return false,
        }
        true
    }

    fn repair(&mut self, repair: Repair) {
        match repair {
            Repair::Start(at) => self.hosts[at].start(),
            Repair::Continue(at) => self.hosts[at].signal(Signal::SIGCONT),
            // Its daemon may have ended it.
            Repair::ContinueAgent(pid) => drop(kill(Pid::from_raw(pid), Signal::SIGCONT)),
            Repair::StartDatabase => self.postgres.start(),
            Repair::ContinueDatabase => {
                self.postgres.freeze(false);
                self.is_frozen = false;
            }
        }
    }

    /// The number of tasks that are to be created or have not ended, if the database is there.
    fn open_tasks(&self) -> Option<u64> {
        let sql = "SELECT count(*) FROM colibri.tasks WHERE status NOT IN ('done', 'failed', 'cancelled')";
        let rows = self
            .has_database()
            .then(|| self.postgres.try_sql("board", sql))?
            .ok()?;
        let open: u64 = rows.first()?.parse().ok()?;
        Some(open + self.new_tasks.load(Ordering::Relaxed))
    }

    /// Repairs everything, waits until all tasks have ended, and ends the daemons.
    fn end(&mut self) {
        for (_, repair) in std::mem::take(&mut self.repairs) {
            self.repair(repair);
        }
        let (mut last, mut changed, mut refused) = (None, Instant::now(), Vec::new());
        self.new_tasks.store(0, Ordering::Relaxed);
        loop {
            self.tend(Instant::now() + LOOK * 3);
            let open = self.open_tasks();
            if open == Some(0) {
                break;
            }
            if open != last {
                (last, changed) = (open, Instant::now());
            }
            assert!(
                changed.elapsed() < STANDSTILL,
                "{open:?} tasks stand still: {refused:?}\n{}",
                self.logs()
            );
            refused = self.release_claims();
        }
        for host in &mut self.hosts {
            host.signal(Signal::SIGTERM);
            host.place.assert_trail_is_sound();
        }
    }

    /// Gives back what persons have: the answers to their claims were lost. Returns what is
    /// refused.
    fn release_claims(&self) -> Vec<String> {
        let sql = "SELECT id, claim FROM colibri.tasks WHERE status IN ('claimed', 'started') AND claimed_session IS NULL";
        let rows = self.postgres.try_sql("board", sql).unwrap_or_default();
        let Some(mut client) = self.hosts[0].client() else {
            return Vec::new();
        };
        let mut refused = Vec::new();
        for row in rows {
            let numbers: Vec<u64> = row
                .split('|')
                .filter_map(|number| number.parse().ok())
                .collect();
            if let [task, claim] = numbers[..] {
                // A refusal: it is somebody else's by now.
                let release =
                    json!({ "task": task, "claim": claim, "reason": "the campaign ends" });
                refused.extend(
                    client
                        .call("colibri_release_task", &release)
                        .and_then(Result::err),
                );
            }
        }
        refused
    }
}

/// A person who creates tasks at all hosts, and does some: each result is given at two hosts at
/// once, of which one at most may take it.
struct Person<'a> {
    random: Random,
    sockets: &'a [PathBuf],
    /// What the person has, with the times that finishing it was tried.
    claims: Vec<(u64, u64, u32)>,
}

impl Person<'_> {
    fn work(&mut self, new_tasks: &AtomicU64, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let wants = |left: u64| left.checked_sub(1);
            if new_tasks
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, wants)
                .is_ok()
            {
                if self.create() != Some(true) {
                    new_tasks.fetch_add(1, Ordering::Relaxed);
                    sleep(LOOK);
                }
            } else if self.random.below(3) == 0 {
                self.claim();
                self.finish();
            } else {
                sleep(LOOK);
            }
        }
        self.finish();
    }

    fn client(&mut self) -> Option<PersonClient> {
        let at = self.random.below(self.sockets.len() as u64) as usize;
        PersonClient::connect(self.sockets[at].clone())
    }

    /// Creates a task. `None`: it may be there.
    fn create(&mut self) -> Option<bool> {
        let what = match self.random.below(100) {
            0..70 => "finish",
            70..78 => "twice",
            78..83 => "old",
            83..88 => "again",
            88..94 => "greedy",
            94..96 => "release",
            96..98 => "fail",
            98 => "crash",
            _ => "leave",
        };
        let description = json!({ "do": what, "ms": self.random.below(1_200) }).to_string();
        let task = json!({ "title": what, "description": description, "priority": self.random.below(10), "source": "campaign" });
        let created = self.client()?.call("colibri_create_task", &task)?;
        Some(created.is_ok())
    }

    fn claim(&mut self) -> Option<()> {
        let claimed = self.client()?.call("colibri_next_task", &json!({}))?.ok()?;
        let task = &claimed["task"];
        self.claims
            .push((task["id"].as_u64()?, task["claim"].as_u64()?, 0));
        Some(())
    }

    fn finish(&mut self) {
        for (task, claim, tries) in std::mem::take(&mut self.claims) {
            let clients = [self.client(), self.client()];
            let finish = |client: Option<PersonClient>, by: u64| {
                let done = json!({ "task": task, "claim": claim, "result": { "task": task, "claim": claim, "by": by } });
                client?.call("colibri_finish_task", &done)
            };
            let (one, other) = scope(|scope| {
                let [one, other] = clients;
                let one = scope.spawn(|| finish(one, 1));
                (finish(other, 2), one.join().unwrap_or_default())
            });
            let is_settled = |done: &Option<Result<_, String>>| match done {
                Some(Ok(_)) => true,
                Some(Err(why)) => why.contains("is over") || why.contains("is done"),
                None => false,
            };
            if !is_settled(&one) && !is_settled(&other) && tries < 5 {
                self.claims.push((task, claim, tries + 1));
            }
        }
    }
}
