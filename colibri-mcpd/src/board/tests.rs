use std::cell::Cell;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use arc_swap::ArcSwap;
use colibri_api::{NewTask, ScheduledCall, ScheduledWork, Task, TaskShare, TaskStatus, Timing};
use tempfile::TempDir;

use super::*;
use crate::relay::{CallRules, Recorder};
use colibri_policy::{Clients, Gates};
use colibri_store::{Database, Seeks, StoreError, TaskFilter, TaskRefusal};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(1_000_000) };
}

fn pass(ms: u64) {
    NOW.set(NOW.get() + ms);
}

const ANN: BoardActor<'_> = BoardActor {
    uid: 1001,
    agent: None,
    operator: false,
    groups: None,
};
const OPERATOR: BoardActor<'_> = BoardActor {
    uid: 9,
    operator: true,
    ..ANN
};
const SESSION: &str = "00000000000000aa";
const CODER: BoardActor<'_> = BoardActor {
    agent: Some(("coder", SESSION)),
    ..ANN
};

/// Agents as a test says they are, and what was started.
#[derive(Default)]
struct Fake {
    candidates: Mutex<Vec<Candidate>>,
    started: Mutex<Vec<(String, u32, u64)>>,
    fails: bool,
    board: Mutex<Option<Arc<Board>>>,
}

impl AgentDirectory for Fake {
    fn candidates(&self, person: u32) -> Vec<Candidate> {
        if person == 1001 {
            self.candidates.lock().unwrap().clone()
        } else {
            Vec::new()
        }
    }
}

impl AgentStarter for Fake {
    fn start(&self, agent: &str, person: u32, task: u64) -> anyhow::Result<()> {
        if self.fails {
            anyhow::bail!("it cannot");
        }
        let board = self.board.lock().unwrap().clone().unwrap();
        let mut started = self.started.lock().unwrap();
        started.push((agent.to_owned(), person, task));
        let session = format!("{:016x}", started.len());
        board
            .reserve(BoardActor { uid: person, ..ANN }, task, &session)
            .unwrap();
        let mut candidates = self.candidates.lock().unwrap();
        let one = candidates
            .iter_mut()
            .find(|one| one.agent == agent)
            .unwrap();
        one.sessions.push(session);
        one.starts -= 1;
        Ok(())
    }
}

/// The rules of a daemon whose gates are open.
fn rules(state: &Path) -> Arc<CallRules> {
    Arc::new(CallRules {
        gates: ArcSwap::from_pointee(Gates::new(true, true)),
        clients: ArcSwap::from_pointee(Clients::absent(state.join("clients.json"))),
    })
}

impl Board {
    /// A board without agents, by the real clock, whose changes nothing records.
    pub(crate) fn for_tests(store: Arc<Database>, state: &Path) -> Arc<Board> {
        let agents: Weak<Fake> = Weak::new();
        Board::new(store, Arc::new(Recorder::Off), rules(state), agents)
    }
}

struct Bench {
    _state: TempDir,
    board: Arc<Board>,
    scheduler: Arc<Scheduler>,
    fake: Arc<Fake>,
    calls: Arc<FakeCalls>,
}

fn bench(candidates: &[(&str, &[&str], &[&str], u32)], fails: bool) -> Bench {
    let state = tempfile::tempdir().unwrap();
    let store = Arc::new(Database::open(state.path()).unwrap());
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let candidates = candidates
        .iter()
        .map(|(agent, can, sessions, starts)| Candidate {
            agent: (*agent).to_owned(),
            capabilities: texts(can),
            sessions: texts(sessions),
            starts: *starts,
        });
    let fake = Arc::new(Fake {
        candidates: Mutex::new(candidates.collect()),
        fails,
        ..Fake::default()
    });
    let agents: Weak<Fake> = Arc::downgrade(&fake);
    let (recorder, rules) = (Arc::new(Recorder::Off), rules(state.path()));
    let board = Board::with_clock(store, recorder, rules, agents, || NOW.get());
    *fake.board.lock().unwrap() = Some(board.clone());
    let calls = Arc::new(FakeCalls::default());
    Bench {
        _state: state,
        scheduler: Scheduler::new(board.clone(), fake.clone(), calls.clone()),
        board,
        fake,
        calls,
    }
}

impl Bench {
    fn add(&self, who: BoardActor<'_>, needs: &[&str]) -> u64 {
        let new = NewTask {
            title: "t".to_owned(),
            description: String::new(),
            source: "s".to_owned(),
            status: TaskStatus::Queued,
            required_capabilities: needs.iter().map(|need| (*need).to_owned()).collect(),
            priority: 5,
            created_by: who.uid,
            share: None,
            limits: Default::default(),
        };
        self.board.create(who, new, None).unwrap().id
    }

    fn now(&self, id: u64) -> Task {
        self.board.task(OPERATOR, id).unwrap().0
    }

    fn started(&self) -> Vec<(String, u64)> {
        let started = self.fake.started.lock().unwrap();
        started
            .iter()
            .map(|(agent, _, task)| (agent.clone(), *task))
            .collect()
    }
}

#[test]
fn a_task_shared_with_a_group_is_its_members_and_of_agents_those_whose_entry_says_so() {
    const STAFF: u32 = 70;
    let bench = bench(&[("coder", &[], &[SESSION], 0)], false);
    let shared = |who: BoardActor<'_>, share| {
        let new = NewTask {
            title: "t".to_owned(),
            description: String::new(),
            source: "s".to_owned(),
            status: TaskStatus::Queued,
            required_capabilities: Vec::new(),
            priority: 9,
            created_by: who.uid,
            share: Some(share),
            limits: Default::default(),
        };
        bench.board.create(who, new, None).unwrap().id
    };
    let bob = BoardActor { uid: 1002, ..ANN };
    let (id, board) = (shared(bob, TaskShare::Group(STAFF)), &bench.board);
    let of = |groups| BoardActor { groups, ..ANN };
    let (member, other) = (of(Some(&[20, STAFF][..])), of(Some(&[20][..])));
    let sees = |who| {
        let listed = board.tasks(who, &TaskFilter::default(), 10, None).unwrap();
        let listed = listed.tasks.iter().any(|task| task.id == id);
        let shown = board.task(who, id).is_ok();
        let queued = board.task_counts(Some(who)).unwrap()[1].1 == 1;
        assert!(listed == shown && shown == queued && shown == board.sees(who, &bench.now(id)));
        shown
    };
    assert!(sees(member) && sees(bob) && !sees(other) && !sees(ANN));
    let next = |who, shared| {
        board
            .next(who, None, None, shared)
            .unwrap()
            .map(|task| task.id)
    };
    assert_eq!(
        (next(member, false), next(other, true), next(ANN, true)),
        (None, None, None)
    );
    assert!(
        board.next(other, Some(id), None, false).is_err(),
        "named, too"
    );
    let agent = |groups| BoardActor { groups, ..CODER };
    assert_eq!(next(agent(None), false), None, "its entry does not say so");
    assert!(board.reserve(ANN, id, SESSION).is_err());
    assert_eq!(next(agent(Some(&[STAFF])), false), Some(id));
    board
        .release(agent(Some(&[STAFF])), id, Some(1), "")
        .unwrap();
    assert_eq!(next(member, true), Some(id));
    assert!(board.cancel(member, id, "not theirs").is_err());
    assert_eq!(
        board.finish(member, id, 2, "1").unwrap().claimed_by,
        Some(ANN.uid)
    );
    assert_eq!(board.counters().claims_of_others, 2);
    let result = |who| board.task(who, id).unwrap().1;
    let colleague = BoardActor {
        uid: 1003,
        ..member
    };
    assert_eq!(
        (result(member), result(bob), result(colleague)),
        (Some("1".to_owned()), Some("1".to_owned()), None)
    );
}

#[test]
fn a_persons_claim_lapses_and_each_call_on_it_renews_it() {
    let bench = bench(&[], false);
    let id = bench.add(ANN, &[]);
    let claim = bench
        .board
        .next(ANN, None, None, false)
        .unwrap()
        .unwrap()
        .claim;
    let lease = super::orders::LEASE.as_millis() as u64;
    pass(lease - 1);
    bench.board.start(ANN, id, claim).unwrap();
    pass(lease - 1);
    bench.board.task(ANN, id).unwrap();
    pass(lease - 1);
    bench.board.task(OPERATOR, id).unwrap();
    bench.scheduler.look().unwrap();
    assert_eq!(bench.now(id).said.status, TaskStatus::Started);
    pass(1);
    bench.scheduler.look().unwrap();
    let back = bench.now(id);
    assert_eq!((back.said.status, back.attempts), (TaskStatus::Queued, 1));
    assert!(back.reason.unwrap().contains("lapsed"));
    let late = bench.board.finish(ANN, id, claim, "1");
    assert!(
        matches!(late, Err(StoreError::Task(TaskRefusal::Status { .. }))),
        "{late:?}"
    );
    let again = bench.board.next(ANN, None, None, false).unwrap().unwrap();
    assert_eq!(again.claim, claim + 1);
    let old = bench.board.finish(ANN, id, claim, "1");
    assert!(
        matches!(old, Err(StoreError::Task(TaskRefusal::OldClaim { .. }))),
        "{old:?}"
    );
}

#[test]
fn an_agents_claim_lasts_as_long_as_its_instance() {
    let bench = bench(&[("coder", &["rust"], &[SESSION], 0)], false);
    let id = bench.add(ANN, &["rust"]);
    bench.add(BoardActor { uid: 1002, ..ANN }, &[]);
    let task = bench.board.next(CODER, None, None, false).unwrap().unwrap();
    assert_eq!((task.id, task.lease_until), (id, None));
    let same = bench.board.next(CODER, None, None, false).unwrap().unwrap();
    assert_eq!((same.id, same.claim), (id, 1), "the one that it has");
    pass(365 * 86_400_000);
    bench.scheduler.look().unwrap();
    assert_eq!(bench.now(id).said.status, TaskStatus::Claimed);
    bench.board.instance_ended(SESSION, "its agent was stopped");
    let back = bench.now(id);
    assert_eq!(
        (back.said.status, back.reason.as_deref()),
        (TaskStatus::Queued, Some("its agent was stopped"))
    );
    assert!(bench.board.finish(CODER, id, 1, "1").is_err());
    // The commit of a claim arrives when its instance has ended, and nobody hears of it.
    let seeks = Seeks {
        capabilities: None,
        lease_until: None,
        shared: false,
    };
    let store = &bench.board.store;
    let late = store.claim_next(CODER.actor(), seeks, NOW.get(), &|_, _| Ok(()));
    assert_eq!(late.unwrap().unwrap().id, id);
    bench.scheduler.look().unwrap();
    let back = bench.now(id);
    assert_eq!(
        (back.said.status, back.reason.as_deref()),
        (TaskStatus::Queued, Some("its agent had ended"))
    );
    let counters = bench.board.counters();
    assert_eq!(
        (
            counters.claims,
            counters.claims_of_others,
            counters.requeues
        ),
        (1, 0, 2)
    );
}

#[test]
fn a_start_that_fails_costs_its_task_no_attempt() {
    let bench = bench(&[], false);
    let id = bench.add(ANN, &[]);
    for n in 0..4 {
        let session = format!("{n:016x}");
        bench.board.reserve(ANN, id, &session).unwrap();
        bench.board.start_failed(&session);
    }
    let now = bench.now(id);
    assert_eq!(
        (now.said.status, now.attempts, now.for_session),
        (TaskStatus::Queued, 0, None)
    );
}

#[test]
fn a_call_that_was_on_its_way_when_its_instance_ended_claims_nothing() {
    let bench = bench(&[("coder", &[], &[SESSION], 0)], false);
    let id = bench.add(ANN, &[]);
    bench.board.instance_ended(SESSION, "its agent was killed");
    assert!(bench.board.next(CODER, None, None, false).is_err());
    let now = bench.now(id);
    assert_eq!((now.said.status, now.claim), (TaskStatus::Queued, 0));
}

#[test]
fn who_starts_is_chosen_and_no_more_than_there_is_room_for() {
    let bench = bench(
        &[
            ("a", &["rust"], &[], 5),
            ("b", &["rust", "freebsd"], &[], 1),
            ("c", &["cobol"], &["00000000000000cc"], 0),
        ],
        false,
    );
    let ids = [
        bench.add(ANN, &["rust", "freebsd"]),
        bench.add(ANN, &["freebsd", "rust"]),
        bench.add(ANN, &["ada"]),
        bench.add(ANN, &["cobol"]),
        bench.add(BoardActor { uid: 1002, ..ANN }, &["rust"]),
        bench.add(BoardActor { uid: 1002, ..ANN }, &["person"]),
    ];
    bench.scheduler.look().unwrap();
    assert_eq!(
        bench.started(),
        [("b".to_owned(), ids[0]), ("a".to_owned(), ids[1])]
    );
    bench.scheduler.look().unwrap();
    assert_eq!(
        bench.started().len(),
        2,
        "nobody is started twice for a task"
    );
    assert_eq!(bench.now(ids[0]).waiting, None);
    assert_eq!(
        bench.now(ids[2]).waiting.unwrap(),
        "no agent can do any of ada"
    );
    assert_eq!(
        bench.now(ids[3]).waiting.unwrap(),
        "c can do it, and has work"
    );
    assert_eq!(
        bench.now(ids[4]).waiting.unwrap(),
        "no agent is there for uid 1002"
    );
    assert_eq!(bench.now(ids[5]).waiting.unwrap(), "it is for a person");
}

#[test]
fn an_instance_that_asked_in_vain_gets_what_fits_it_best() {
    let (first, second) = ("00000000000000a1", "00000000000000a2");
    let bench = bench(
        &[
            ("half", &["rust"], &[first], 0),
            ("whole", &["rust", "c"], &[second], 0),
        ],
        false,
    );
    for (agent, session) in [("half", first), ("whole", second)] {
        let who = BoardActor {
            agent: Some((agent, session)),
            ..ANN
        };
        assert_eq!(bench.board.next(who, None, None, false).unwrap(), None);
    }
    let ids = [bench.add(ANN, &["c", "rust"]), bench.add(ANN, &["rust"])];
    bench.scheduler.look().unwrap();
    assert_eq!(bench.now(ids[0]).for_session.as_deref(), Some(second));
    assert_eq!(bench.now(ids[1]).for_session.as_deref(), Some(first));
    // Who does not come for it does not keep it from others.
    pass(30_001);
    assert_eq!(
        bench
            .board
            .next(ANN, None, None, false)
            .unwrap()
            .unwrap()
            .id,
        ids[0]
    );
}

#[test]
fn a_start_that_fails_is_not_repeated_for_each_task() {
    let bench = bench(&[("a", &[], &[], 5)], true);
    for _ in 0..3 {
        bench.add(ANN, &[]);
    }
    bench.scheduler.look().unwrap();
    assert_eq!(bench.started(), []);
    assert_eq!(bench.now(1).said.status, TaskStatus::Queued);
}

#[test]
fn changes_are_told_in_order() {
    let bench = bench(&[], false);
    let mut changes = bench.board.watch();
    let id = bench.add(ANN, &[]);
    let claim = bench
        .board
        .next(ANN, None, None, false)
        .unwrap()
        .unwrap()
        .claim;
    bench.board.finish(ANN, id, claim, "{}").unwrap();
    let mut told = Vec::new();
    while let Ok(change) = changes.try_recv() {
        told.push((change.from, change.task.said.status));
    }
    use TaskStatus::{Claimed, Done, Queued};
    assert_eq!(
        told,
        [
            (None, Queued),
            (Some(Queued), Claimed),
            (Some(Claimed), Done)
        ]
    );
}

/// Receives the answer to a call.
type Done = Box<dyn FnOnce(&str) + Send>;

/// Notes calls, and answers the last when told to.
#[derive(Default)]
struct FakeCalls {
    made: Mutex<Vec<(u32, String, String)>>,
    open: Mutex<Option<Done>>,
}

impl ScheduledToolCaller for FakeCalls {
    fn call(&self, person: u32, tool: &str, arguments: &str, done: Done) {
        self.made
            .lock()
            .unwrap()
            .push((person, tool.to_owned(), arguments.to_owned()));
        *self.open.lock().unwrap() = Some(done);
    }
}

/// Somebody who has an account everywhere.
const ROOT: BoardActor<'_> = BoardActor { uid: 0, ..ANN };

fn every(seconds: u64) -> Timing {
    Timing {
        every_s: Some(seconds),
        ..Timing::default()
    }
}

fn creating(created_by: u32) -> ScheduledWork {
    let task = NewTask {
        title: "again".to_owned(),
        description: String::new(),
        source: "schedule".to_owned(),
        status: TaskStatus::Queued,
        required_capabilities: Vec::new(),
        priority: 5,
        created_by,
        share: None,
        limits: Default::default(),
    };
    ScheduledWork {
        task: Some(task),
        call: None,
    }
}

#[test]
fn a_run_that_was_missed_runs_once_and_never_beside_the_last_task() {
    let bench = bench(&[], false);
    let schedule = bench
        .board
        .schedule_work(ROOT, every(60), creating(0))
        .unwrap();
    bench.scheduler.look().unwrap();
    assert_eq!(
        bench.board.task_counts(None).unwrap()[1].1,
        0,
        "it is not due yet"
    );
    pass(3_600_000);
    bench.scheduler.look().unwrap();
    bench.scheduler.look().unwrap();
    assert_eq!(
        bench.board.task_counts(None).unwrap()[1].1,
        1,
        "sixty runs were missed, one is made up for"
    );
    let after = bench.board.schedules(ROOT).unwrap().remove(0);
    assert_eq!((after.runs, after.last_task), (1, Some(1)));
    assert!(after.next_at.unwrap() > schedule.next_at.unwrap() + 3_500_000);
    pass(61_000);
    bench.scheduler.look().unwrap();
    assert_eq!(bench.board.task_counts(None).unwrap()[1].1, 1);
    let last = bench
        .board
        .schedules(ROOT)
        .unwrap()
        .remove(0)
        .last_outcome
        .unwrap();
    assert_eq!(last, "passed over: task 1 has not ended yet");
    bench.board.cancel(ROOT, 1, "").unwrap();
    pass(61_000);
    bench.scheduler.look().unwrap();
    assert_eq!(
        bench.board.task_counts(None).unwrap()[1].1,
        1,
        "the next one"
    );
    bench
        .board
        .unschedule(BoardActor { uid: 7, ..ANN }, 1)
        .unwrap_err();
    bench.board.unschedule(ROOT, 1).unwrap();
    assert_eq!(bench.board.schedules(ROOT).unwrap().len(), 0);
}

#[test]
fn a_schedule_of_one_time_runs_once() {
    let bench = bench(&[], false);
    let at = Timing {
        at: Some("1970-01-01T01:00:00Z".to_owned()),
        ..Timing::default()
    };
    bench
        .board
        .schedule_work(ROOT, at.clone(), creating(0))
        .unwrap();
    pass(7_200_000);
    bench.scheduler.look().unwrap();
    bench.board.cancel(ROOT, 1, "").unwrap();
    pass(7_200_000);
    bench.scheduler.look().unwrap();
    let after = bench.board.schedules(ROOT).unwrap().remove(0);
    assert_eq!((after.runs, after.next_at), (1, None));
    let over = bench.board.schedule_work(ROOT, at, creating(0));
    assert!(matches!(over, Err(StoreError::Timing(_))), "{over:?}");
}

#[test]
fn a_tool_is_called_as_its_creator_and_not_again_before_it_has_answered() {
    let bench = bench(&[], false);
    let calls = &bench.calls;
    let work = ScheduledWork {
        task: None,
        call: Some(ScheduledCall {
            tool: "git__status".to_owned(),
            arguments: serde_json::value::RawValue::from_string("{\"n\":1e400}".to_owned())
                .unwrap(),
        }),
    };
    bench
        .board
        .schedule_work(BoardActor { uid: 1002, ..ANN }, every(60), work)
        .unwrap();
    for _ in 0..3 {
        pass(61_000);
        bench.scheduler.look().unwrap();
    }
    let made = (1002, "git__status".to_owned(), "{\"n\":1e400}".to_owned());
    assert_eq!(*calls.made.lock().unwrap(), std::slice::from_ref(&made));
    let open = calls.open.lock().unwrap().take().unwrap();
    open("failed: no such tool");
    let operator = BoardActor {
        operator: true,
        ..ANN
    };
    let after = bench.board.schedules(operator).unwrap().remove(0);
    assert_eq!(after.last_outcome.as_deref(), Some("failed: no such tool"));
    assert_eq!(
        bench.board.schedules(ANN).unwrap().len(),
        0,
        "another's are not shown"
    );
    pass(61_000);
    bench.scheduler.look().unwrap();
    assert_eq!(*calls.made.lock().unwrap(), [made.clone(), made]);
}
