//! The board beside itself: claims a second and the 99th percentiles of claim, finish and list,
//! with SQLite and with PostgreSQL, for boards of so many tasks, somewhat less than half of them
//! queued and the others done, and so many simulated agents. More queued ones would be refused:
//! what is free is shared among the persons.
//!
//! `cargo bench -p colibri-tests --bench board -- [CLAIMS]`; by default 2,000 claims each. SQLite
//! has one daemon; PostgreSQL, where it is installed, three, which share the agents. All of them
//! are in this process: what they do for the board is the daemon's, and no agent takes time for its
//! work. Nothing is recorded in a trail.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use colibri_api::{NewTask, TaskLimits, TaskStatus};
use colibri_mcpd::board::{AgentDirectory, Board, BoardActor, Candidate};
use colibri_mcpd::relay::{CallRules, Recorder};
use colibri_policy::{Clients, Gates};
use colibri_store::{
    BoardAddress, BoardMembership, CountedHost, Database, Fleet, HostIdentity, TaskFilter,
};
use colibri_tests::{Postgres, open_trail, wait_for};
use nix::unistd::{Uid, User};
use tempfile::TempDir;

/// Persons, who have as many tasks each.
const PERSONS: u32 = 250;
/// The uid of the first.
const FIRST: u32 = 2_000_000;
/// The threads that fill a board in PostgreSQL.
const WRITERS: usize = 30;
/// The statement that fills a board, after the statuses, persons and times that it selects.
const FILL: &str = "INSERT INTO tasks (title, description, source, required_capabilities, priority, status, created_by,
    created_at, updated_at) SELECT 'A task of the bench', '', 'bench', '[]', 5, ";

/// No agents: each simulated one says itself what it is.
struct NoAgents;

impl AgentDirectory for NoAgents {
    fn candidates(&self, _: u32) -> Vec<Candidate> {
        Vec::new()
    }
}

/// The boards of as many daemons over one store of tasks.
struct Ground {
    _directories: Vec<TempDir>,
    _postgres: Option<Postgres>,
    boards: Vec<Arc<Board>>,
}

fn board(store: Database, directory: &TempDir) -> Arc<Board> {
    let rules = CallRules {
        gates: ArcSwap::from_pointee(Gates::new(true, true)),
        clients: ArcSwap::from_pointee(Clients::absent(directory.path().join("clients.json"))),
    };
    let agents: Weak<NoAgents> = Weak::new();
    Board::new(
        Arc::new(store),
        Arc::new(Recorder::Off),
        Arc::new(rules),
        agents,
    )
}

fn sqlite(tasks: u32) -> Ground {
    let directory = tempfile::tempdir().expect("a directory");
    drop(Database::open(directory.path()).expect("a store"));
    let store = rusqlite::Connection::open(directory.path().join("colibri.db")).expect("its file");
    let fill = format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {tasks})
         {FILL} CASE WHEN i < {queued} THEN 'queued' ELSE 'done' END, {FIRST} + i % {PERSONS}, 0, 0 FROM n",
        queued = queued(tasks)
    );
    store.execute_batch(&fill).expect("tasks");
    drop(store);
    let store = Database::open(directory.path()).expect("a store");
    Ground {
        boards: vec![board(store, &directory)],
        _directories: vec![directory],
        _postgres: None,
    }
}

/// The queued tasks on a board of so many.
fn queued(tasks: u32) -> u32 {
    tasks * 9 / 20
}

/// Has the boards create so many tasks, as many for each person.
fn fill(boards: &[Arc<Board>], tasks: u32) {
    let left = AtomicU32::new(tasks);
    std::thread::scope(|scope| {
        for board in boards.iter().cycle().take(WRITERS) {
            let left = &left;
            scope.spawn(move || {
                while let Ok(number) =
                    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                        left.checked_sub(1)
                    })
                {
                    let who = BoardActor {
                        uid: FIRST + number % PERSONS,
                        agent: None,
                        operator: false,
                        groups: None,
                    };
                    let new = NewTask {
                        title: "A task of the bench".to_owned(),
                        description: String::new(),
                        source: "bench".to_owned(),
                        status: TaskStatus::Queued,
                        required_capabilities: Vec::new(),
                        priority: 5,
                        created_by: who.uid,
                        share: None,
                        limits: TaskLimits::default(),
                    };
                    board.create(who, new, None).expect("a task");
                }
            });
        }
    });
}

fn postgres(tasks: u32) -> Ground {
    let postgres = Postgres::new();
    let own = User::from_uid(Uid::effective())
        .expect("users")
        .expect("an account")
        .name;
    postgres.database("board", &own);
    let persons: HashMap<u32, String> =
        (0..PERSONS).map(|n| (FIRST + n, format!("p{n}"))).collect();
    let mut boards = Vec::new();
    let mut directories = Vec::new();
    let names = ["one", "two", "three"];
    let found: Vec<_> = names
        .map(|name| (name, tempfile::tempdir().expect("a directory")))
        .map(|(name, directory)| {
            (
                name,
                open_trail(directory.path()).signer().clone(),
                directory,
            )
        })
        .into();
    let counted = found.iter().map(|(name, signer, _)| {
        let (key, persons) = (signer.verifier().clone(), ["*".to_owned()].into());
        ((*name).to_owned(), CountedHost { key, persons })
    });
    let counted: BTreeMap<_, _> = counted.collect();
    for (name, signer, directory) in found {
        let address = BoardAddress::parse(&postgres.url("board")).expect("an address");
        let host = HostIdentity {
            name: name.to_owned(),
            signer,
        };
        let fleet = Fleet::start(address, host).expect("a host");
        fleet.map_persons(persons.clone());
        fleet.count_hosts(counted.clone());
        wait_for("the board", || (!fleet.is_away()).then_some(()));
        let store = Database::open(directory.path()).expect("a store");
        boards.push(board(store.with_fleet(fleet), &directory));
        directories.push(directory);
    }
    // Each is signed by the host that created it: one that SQL puts there is given to nobody.
    fill(&boards, queued(tasks));
    let (from, to) = (queued(tasks), tasks - 1);
    let done = format!(
        "SET search_path = colibri; {FILL} 'done', (SELECT min(id) FROM persons) + i % {PERSONS}, 0, 0
             FROM generate_series({from}, {to}) i; ANALYZE"
    );
    postgres.sql("board", &done);
    Ground {
        _directories: directories,
        _postgres: Some(postgres),
        boards,
    }
}

/// The times of one kind of statement.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn p99(&mut self) -> f64 {
        self.0.sort();
        let at = (self.0.len() * 99 / 100).min(self.0.len().saturating_sub(1));
        self.0
            .get(at)
            .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

fn measure(name: &str, ground: &Ground, tasks: u32, agents: usize, claims: usize) {
    let left = AtomicUsize::new(claims);
    let began = Instant::now();
    let all: Vec<[Times; 3]> = std::thread::scope(|scope| {
        let work = |number: usize| {
            let left = &left;
            let board = &ground.boards[number % ground.boards.len()];
            move || {
                let session = format!("{number:016x}");
                let who = BoardActor {
                    uid: FIRST + number as u32 % PERSONS,
                    agent: Some(("bench", &session)),
                    operator: false,
                    groups: None,
                };
                let mut times: [Times; 3] = Default::default();
                let mut note = |kind: usize, since: Instant| times[kind].0.push(since.elapsed());
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                        left.checked_sub(1)
                    })
                    .is_ok()
                {
                    let since = Instant::now();
                    let Some(task) = board.next(who, None, None, false).expect("a claim") else {
                        break;
                    };
                    note(0, since);
                    let since = Instant::now();
                    board
                        .finish(who, task.id, task.claim, "{}")
                        .expect("a finish");
                    note(1, since);
                    if task.id % 10 == 0 {
                        let since = Instant::now();
                        board
                            .tasks(who, &TaskFilter::default(), 50, None)
                            .expect("a list");
                        note(2, since);
                    }
                }
                times
            }
        };
        let threads: Vec<_> = (0..agents)
            .map(|number| scope.spawn(work(number)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("an agent"))
            .collect()
    });
    let took = began.elapsed().as_secs_f64();
    let mut sums: [Times; 3] = Default::default();
    for times in all {
        for (sum, times) in sums.iter_mut().zip(times) {
            sum.0.extend(times.0);
        }
    }
    let done = sums[0].0.len();
    let [claim, finish, list] = sums.each_mut().map(Times::p99);
    println!(
        "| {name} | {tasks} | {agents} | {:.0} | {claim:.1} | {finish:.1} | {list:.1} |",
        done as f64 / took
    );
}

fn main() {
    let claims = std::env::args()
        .filter_map(|word| word.parse().ok())
        .next()
        .unwrap_or(2_000);
    println!(
        "| board | tasks | agents | claims/s (each with its finish) | claim p99 ms | finish p99 ms | list p99 ms |"
    );
    println!("|---|---|---|---|---|---|---|");
    for tasks in [1_000, 100_000] {
        let mut grounds = vec![("SQLite", sqlite(tasks))];
        if cfg!(postgres) {
            grounds.push(("PostgreSQL, 3 hosts", postgres(tasks)));
        }
        for (name, ground) in grounds {
            for agents in [10, 100, 1_000] {
                let most = claims.min(queued(tasks) * 9 / 10);
                measure(name, &ground, tasks, agents, most as usize);
                fill(&ground.boards, most);
            }
        }
    }
}
