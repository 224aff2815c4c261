//! Claims of many at once on a board in PostgreSQL: the boards of two hosts, in this process.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use colibri_api::{NewTask, TaskLimits, TaskStatus};
use colibri_mcpd::board::{AgentDirectory, Board, BoardActor, Candidate};
use colibri_mcpd::relay::{CallRules, Recorder};
use colibri_policy::{Clients, Gates};
use colibri_store::{BoardAddress, BoardMembership, CountedHost, Database, Fleet, HostIdentity};
use colibri_tests::{Postgres, open_trail, wait_for};
use colibri_trail::Signer;
use tempfile::TempDir;

/// A person of both hosts.
const ANN: u32 = 2_000_001;

struct NoAgents;

impl AgentDirectory for NoAgents {
    fn candidates(&self, _: u32) -> Vec<Candidate> {
        Vec::new()
    }
}

fn joined(
    postgres: &Postgres,
    name: &str,
    directory: &TempDir,
    signers: &[Arc<Signer>; 2],
) -> Arc<Board> {
    let host = HostIdentity {
        name: name.to_owned(),
        signer: signers[usize::from(name == "two")].clone(),
    };
    let fleet = Fleet::start(BoardAddress::parse(&postgres.url("board")).unwrap(), host).unwrap();
    fleet.map_persons(HashMap::from([(ANN, "ann".to_owned())]));
    let counted = ["one", "two"]
        .into_iter()
        .zip(signers)
        .map(|(name, signer)| {
            let (key, persons) = (signer.verifier().clone(), ["*".to_owned()].into());
            (name.to_owned(), CountedHost { key, persons })
        });
    fleet.count_hosts(counted.collect());
    wait_for("the board", || (!fleet.is_away()).then_some(()));
    let store = Database::open(directory.path()).unwrap().with_fleet(fleet);
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

/// The number of statements in the server's log.
fn statements(postgres: &Postgres) -> usize {
    let log = fs::read_to_string(postgres.socket().join("log")).unwrap();
    log.lines()
        .filter(|line| line.contains("LOG:  statement:") || line.contains("LOG:  execute "))
        .count()
}

fn agent(session: &str) -> BoardActor<'_> {
    BoardActor {
        uid: ANN,
        agent: Some(("worker", session)),
        operator: false,
        groups: None,
    }
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn many_claim_at_once_and_each_task_is_one_instances_and_each_instance_has_one() {
    let postgres = super::postgres::board();
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let signers = directories
        .each_ref()
        .map(|own| open_trail(own.path()).signer().clone());
    let boards = [
        joined(&postgres, "one", &directories[0], &signers),
        joined(&postgres, "two", &directories[1], &signers),
    ];
    let person = BoardActor {
        agent: None,
        ..agent("")
    };
    for number in 0..200 {
        let new = NewTask {
            title: "t".to_owned(),
            description: String::new(),
            source: "s".to_owned(),
            status: TaskStatus::Queued,
            required_capabilities: Vec::new(),
            priority: 1 + number % 9,
            created_by: ANN,
            share: None,
            limits: TaskLimits::default(),
        };
        boards[usize::from(number % 2)]
            .create(person, new, None)
            .unwrap();
    }
    // One instance that asks for many at once has one.
    let had: Vec<u64> = std::thread::scope(|scope| {
        let ask = || {
            boards[0]
                .next(agent("00000000000000ff"), None, None, false)
                .unwrap()
                .unwrap()
                .id
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(had.iter().all(|id| *id == had[0]), "{had:?}");
    let claimed = "SELECT count(*) FROM colibri.tasks WHERE status = 'claimed'";
    assert_eq!(postgres.sql("board", claimed), ["1"]);
    let first = "SELECT id FROM colibri.tasks ORDER BY priority DESC, id LIMIT 1";
    assert_eq!(postgres.sql("board", first), [had[0].to_string()]);
    postgres.sql("board", "ALTER SYSTEM SET log_statement = 'all'");
    postgres.sql("board", "SELECT pg_reload_conf()");
    wait_for("the server to log statements", || {
        (statements(&postgres) > 0).then_some(())
    });
    let before = statements(&postgres);
    // Many instances of two hosts do all the others, each once.
    let mut done: Vec<u64> = std::thread::scope(|scope| {
        let work = |number: usize| {
            let board = &boards[number % 2];
            move || {
                let (session, mut done) = (format!("{number:016x}"), Vec::new());
                while let Some(task) = board.next(agent(&session), None, None, false).unwrap() {
                    assert_eq!(task.claim, 1);
                    done.push(
                        board
                            .finish(agent(&session), task.id, task.claim, "{}")
                            .unwrap()
                            .id,
                    );
                }
                done
            }
        };
        let threads: Vec<_> = (0..24).map(|number| scope.spawn(work(number))).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    // Four a claim and four a finish; the rest are the last claims in vain, the leases and the
    // wakes.
    let sent = statements(&postgres) - before;
    println!(
        "{sent} statements for {} claims and as many finishes",
        done.len()
    );
    assert!((8 * 199..10 * 199).contains(&sent), "{sent}");
    done.sort_unstable();
    done.dedup();
    assert_eq!(done.len(), 199);
    let counted = boards.each_ref().map(|board| board.counters().claims);
    assert_eq!(counted[0] + counted[1], 200);
}
