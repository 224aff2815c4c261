use super::*;
use crate::{MAX_PAGE, TaskFilter};
use colibri_api::NewTask;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tempfile::TempDir;

const PERSON: Actor<'_> = Actor {
    uid: 1001,
    session: None,
    operator: false,
    groups: None,
};
const AGENT: Actor<'_> = Actor {
    session: Some("00000000000000aa"),
    ..PERSON
};
const ANY: Seeks<'_> = Seeks {
    capabilities: None,
    lease_until: Some(1000),
    shared: false,
};

fn told(_: &Task, _: Option<TaskStatus>) -> Result<(), String> {
    Ok(())
}

fn store() -> (TempDir, Database) {
    let state = tempfile::tempdir().unwrap();
    let store = Database::open(state.path()).unwrap();
    // One commit at the disk's pace is enough: these tests are about order, not about durability.
    store
        .with(|c| c.pragma_update(None, "synchronous", "OFF"))
        .unwrap();
    (state, store)
}

fn add(store: &Database, priority: u8, created_by: u32, needs: &[&str]) -> u64 {
    let new = NewTask {
        title: "t".to_owned(),
        description: String::new(),
        source: "s".to_owned(),
        status: TaskStatus::Queued,
        required_capabilities: needs.iter().map(|need| (*need).to_owned()).collect(),
        priority,
        created_by,
        share: None,
        limits: Default::default(),
    };
    store.added(new).unwrap().id
}

fn next(store: &Database, who: Actor<'_>, seeks: Seeks<'_>) -> Option<Task> {
    store.claim_next(who, seeks, 10, &told).unwrap()
}

fn order(
    store: &Database,
    id: u64,
    who: Actor<'_>,
    order: ClaimOrder<'_>,
) -> Result<Task, TaskRefusal> {
    store
        .order(id, who, order, 10, &told)
        .map_err(|error| match error {
            StoreError::Task(refusal) => refusal,
            other => panic!("{other}"),
        })
}

#[test]
fn the_oldest_of_the_highest_priority_comes_first() {
    let (_state, store) = store();
    let ids = [
        add(&store, 5, 1001, &[]),
        add(&store, 9, 1001, &["rust"]),
        add(&store, 9, 1001, &[]),
    ];
    for wanted in [ids[1], ids[2], ids[0]] {
        let task = next(&store, PERSON, ANY).unwrap();
        assert_eq!(
            (task.id, task.claim, task.claimed_by),
            (wanted, 1, Some(1001))
        );
        assert_eq!(
            (task.said.status, task.lease_until),
            (TaskStatus::Claimed, Some(1000))
        );
    }
    assert_eq!(next(&store, PERSON, ANY), None);
}

#[test]
fn an_instance_that_asks_twice_at_once_gets_one() {
    let (_state, store) = store();
    let first = add(&store, 5, 1001, &[]);
    let second = add(&store, 5, 1001, &[]);
    assert_eq!(next(&store, AGENT, ANY).map(|task| task.id), Some(first));
    assert_eq!(next(&store, AGENT, ANY), None);
    order(&store, first, AGENT, ClaimOrder::Finish(1, "1")).unwrap();
    assert_eq!(next(&store, AGENT, ANY).map(|task| task.id), Some(second));
}

#[test]
fn who_can_do_none_of_what_is_needed_does_not_get_it() {
    let (_state, store) = store();
    let hard = add(&store, 9, 1001, &["rust", "freebsd"]);
    let odd = add(&store, 8, 1001, &["rus"]);
    let others = add(&store, 7, 1002, &[]);
    let (rust, none) = (["rust".to_owned(), "%".to_owned()], ["cobol".to_owned()]);
    let with = |capabilities| Seeks {
        capabilities: Some(capabilities),
        lease_until: None,
        shared: false,
    };
    assert_eq!(
        next(&store, AGENT, with(&none)),
        None,
        "another person's is none of an agent's"
    );
    let got = next(&store, AGENT, with(&rust)).unwrap();
    assert_eq!(
        (got.id, got.claimed_session.as_deref()),
        (hard, AGENT.session)
    );
    assert_eq!(
        next(&store, AGENT, with(&rust)),
        None,
        "{odd} needs something else"
    );
    assert_eq!(next(&store, PERSON, with(&none)), None, "nor of a person's");
    let other = Actor {
        uid: 1002,
        ..PERSON
    };
    assert_eq!(next(&store, other, with(&none)).unwrap().id, others);
}

#[test]
fn what_is_reserved_goes_to_its_instance_and_before_all_else() {
    let (_state, store) = store();
    let kept = add(&store, 1, 1001, &["cobol"]);
    let free = add(&store, 9, 1001, &[]);
    let seeks = Seeks {
        capabilities: Some(&[]),
        lease_until: None,
        shared: false,
    };
    store
        .reserve(kept, (PERSON, AGENT.session.unwrap()), None, 5)
        .unwrap();
    let again = store.reserve(kept, (PERSON, "00000000000000bb"), None, 5);
    assert!(matches!(
        again,
        Err(StoreError::Task(TaskRefusal::Reserved { .. }))
    ));
    let other = Actor {
        uid: 1002,
        ..PERSON
    };
    let foreign = store.reserve(free, (other, "00000000000000bb"), None, 5);
    assert!(matches!(
        foreign,
        Err(StoreError::Task(TaskRefusal::Missing(_)))
    ));
    let operator = Actor {
        operator: true,
        groups: None,
        ..other
    };
    let foreign = store.reserve(free, (operator, "00000000000000bb"), None, 5);
    assert!(matches!(
        foreign,
        Err(StoreError::Task(TaskRefusal::NotCreator(_)))
    ));
    let taken = order(&store, kept, PERSON, ClaimOrder::Claim(None));
    assert!(matches!(taken, Err(TaskRefusal::Reserved { .. })));
    assert_eq!(next(&store, AGENT, seeks).unwrap().id, kept);
    assert_eq!(
        store.held_by(AGENT.session.unwrap()).unwrap().unwrap().id,
        kept
    );
    store
        .reserve(free, (PERSON, "00000000000000bb"), Some(9), 5)
        .unwrap();
    assert_eq!(
        next(&store, PERSON, ANY).unwrap().id,
        free,
        "its time is over"
    );
}

#[test]
fn every_order_under_an_old_or_foreign_claim_is_refused() {
    let (_state, store) = store();
    let id = add(&store, 5, 1001, &[]);
    let first = next(&store, PERSON, ANY).unwrap().claim;
    order(&store, id, PERSON, ClaimOrder::Release(first, "not now")).unwrap();
    let second = next(&store, PERSON, ANY).unwrap().claim;
    assert_eq!((first, second), (1, 2));
    type Made = fn(u64) -> ClaimOrder<'static>;
    let orders: [Made; 4] = [
        |claim| ClaimOrder::Start(claim, None),
        |claim| ClaimOrder::Finish(claim, "1"),
        |claim| ClaimOrder::Fail(claim, "x"),
        |claim| ClaimOrder::Release(claim, "x"),
    ];
    for made in orders {
        for claim in [0, first, 3, u64::MAX] {
            let refused = order(&store, id, PERSON, made(claim)).unwrap_err();
            assert!(
                matches!(refused, TaskRefusal::OldClaim { current: 2, .. }),
                "{refused}"
            );
        }
        let stranger = Actor {
            uid: 1002,
            ..PERSON
        };
        let refused = order(&store, id, AGENT, made(second)).unwrap_err();
        assert!(matches!(refused, TaskRefusal::NotYours { .. }), "{refused}");
        let refused = order(&store, id, stranger, made(second)).unwrap_err();
        assert_eq!(
            refused,
            TaskRefusal::Missing(id),
            "as one that is not there"
        );
        for missing in [0, id + 1, i64::MAX as u64, u64::MAX] {
            let refused = order(&store, missing, PERSON, made(second)).unwrap_err();
            assert_eq!(refused, TaskRefusal::Missing(missing));
        }
    }
    order(&store, id, PERSON, ClaimOrder::Start(second, Some(2000))).unwrap();
    order(
        &store,
        id,
        PERSON,
        ClaimOrder::Finish(second, "{\"n\":1e400}"),
    )
    .unwrap();
    for made in orders {
        let refused = order(&store, id, PERSON, made(second)).unwrap_err();
        assert!(refused.to_string().contains("task 1 is done"), "{refused}");
    }
    let (task, result) = store.task(id).unwrap();
    assert_eq!(
        (task.said.status, result.as_deref()),
        (TaskStatus::Done, Some("{\"n\":1e400}"))
    );
    assert_eq!(
        (task.started_at, task.ended_at, task.lease_until),
        (Some(10), Some(10), None)
    );
}

#[test]
fn what_comes_back_counts_and_fails_at_the_third_time() {
    let (_state, store) = store();
    let id = add(&store, 5, 1001, &[]);
    let claim = next(&store, PERSON, ANY).unwrap().claim;
    let back = order(&store, id, PERSON, ClaimOrder::Release(claim, "not now")).unwrap();
    assert_eq!(
        (back.attempts, back.reason.as_deref()),
        (1, Some("not now"))
    );
    assert_eq!((back.claimed_by, back.lease_until), (None, None));
    next(&store, PERSON, ANY).unwrap();
    assert_eq!(store.requeue_lapsed(999, &told).unwrap(), []);
    assert_eq!(store.requeue_lapsed(1000, &told).unwrap()[0].attempts, 2);
    next(
        &store,
        AGENT,
        Seeks {
            lease_until: None,
            ..ANY
        },
    )
    .unwrap();
    assert_eq!(
        store.requeue_lapsed(u64::MAX >> 1, &told).unwrap(),
        [],
        "an agent's has no end"
    );
    assert_eq!(
        store
            .requeue_of("00000000000000bb", "gone", 20, &told)
            .unwrap(),
        []
    );
    let failed = store
        .requeue_of(AGENT.session.unwrap(), "its agent ended", 20, &told)
        .unwrap();
    assert_eq!(
        (failed[0].said.status, failed[0].ended_at),
        (TaskStatus::Failed, Some(20))
    );
    let reason = failed[0].reason.as_deref().unwrap();
    assert!(
        reason.contains("3 times") && reason.contains("its agent ended"),
        "{reason}"
    );
}

#[test]
fn at_a_start_no_instance_is_there_any_more() {
    let (_state, store) = store();
    let ids = [
        add(&store, 9, 1001, &[]),
        add(&store, 5, 1001, &[]),
        add(&store, 1, 1001, &[]),
    ];
    next(
        &store,
        AGENT,
        Seeks {
            lease_until: None,
            ..ANY
        },
    )
    .unwrap();
    next(&store, PERSON, ANY).unwrap();
    store
        .reserve(ids[2], (PERSON, "00000000000000bb"), None, 5)
        .unwrap();
    let requeued = store
        .requeue_all_instances("the daemon was restarted", 30, &told)
        .unwrap();
    assert_eq!(
        requeued.iter().map(|task| task.id).collect::<Vec<_>>(),
        [ids[0]]
    );
    assert_eq!(
        store.task(ids[1]).unwrap().0.said.status,
        TaskStatus::Claimed,
        "a person may come back"
    );
    let (kept, _) = store.task(ids[2]).unwrap();
    assert_eq!(
        (kept.for_session, kept.attempts),
        (None, 0),
        "nobody had it yet"
    );
}

#[test]
fn taken_in_queued_and_cancelled_by_who_may() {
    let (_state, store) = store();
    let id = add(&store, 5, 1001, &[]);
    store
        .with(|c| c.execute("UPDATE tasks SET status = 'intake'", []))
        .unwrap();
    assert_eq!(next(&store, PERSON, ANY), None, "nobody has looked at it");
    assert_eq!(
        order(&store, id, PERSON, ClaimOrder::Queue)
            .unwrap()
            .said
            .status,
        TaskStatus::Queued
    );
    assert!(matches!(
        order(&store, id, PERSON, ClaimOrder::Queue),
        Err(TaskRefusal::Status { .. })
    ));
    let stranger = Actor {
        uid: 1002,
        ..PERSON
    };
    for made in [
        ClaimOrder::Cancel(""),
        ClaimOrder::Queue,
        ClaimOrder::Claim(None),
    ] {
        let refused = order(&store, id, stranger, made);
        assert_eq!(
            refused,
            Err(TaskRefusal::Missing(id)),
            "as one that is not there"
        );
    }
    let operator = Actor {
        operator: true,
        groups: None,
        ..stranger
    };
    let claim = next(&store, PERSON, ANY).unwrap().claim;
    let over = order(&store, id, operator, ClaimOrder::Cancel("no more")).unwrap();
    assert_eq!(
        (over.said.status, over.reason.as_deref()),
        (TaskStatus::Cancelled, Some("no more"))
    );
    let late = order(&store, id, PERSON, ClaimOrder::Finish(claim, "1"));
    assert!(matches!(
        late,
        Err(TaskRefusal::Status {
            status: "cancelled",
            ..
        })
    ));
}

#[test]
fn what_cannot_be_recorded_is_not_done() {
    let (_state, store) = store();
    let id = add(&store, 5, 1001, &[]);
    let full = |_: &Task, _: Option<TaskStatus>| Err("the disk is full".to_owned());
    let refused = store.claim_next(PERSON, ANY, 10, &full);
    assert!(matches!(refused, Err(StoreError::Unrecorded(why)) if why == "the disk is full"));
    assert_eq!(store.task(id).unwrap().0.said.status, TaskStatus::Queued);
    next(&store, PERSON, ANY).unwrap();
    assert!(
        store
            .order(id, PERSON, ClaimOrder::Finish(1, "1"), 10, &full)
            .is_err()
    );
    assert!(store.requeue_lapsed(5000, &full).is_err());
    let (task, result) = store.task(id).unwrap();
    assert_eq!((task.said.status, result), (TaskStatus::Claimed, None));
}

#[test]
fn among_ten_thousand_tasks_the_one_that_fits_is_found() {
    let (_state, store) = store();
    let fits = add(&store, 0, 1001, &["ada", "rust"]);
    store
        .with(|c| {
            c.execute(
                "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 10001)
                 INSERT INTO tasks (id, title, description, source, status, required_capabilities, priority,
                     created_by, created_at, updated_at)
                 SELECT i, 't', '', 's', 'queued', '[\"cobol\"]', 9, 1001, 0, 0 FROM n",
                [],
            )
        })
        .unwrap();
    let rust = ["rust".to_owned()];
    assert_eq!(
        store
            .next_waiting(1001, &rust, None, 10)
            .unwrap()
            .unwrap()
            .id,
        fits
    );
    let seeks = Seeks {
        capabilities: Some(&rust),
        lease_until: None,
        shared: false,
    };
    assert_eq!(next(&store, AGENT, seeks).unwrap().id, fits);
    assert_eq!(next(&store, AGENT, seeks), None);
    assert_eq!(store.next_waiting(1001, &rust, None, 10).unwrap(), None);
    assert_eq!(next(&store, PERSON, ANY).unwrap().id, 2);
}

#[test]
fn two_claimers_in_threads_and_in_two_stores_never_get_the_same_task() {
    let (state, store) = store();
    for _ in 0..120 {
        add(&store, 5, 1001, &[]);
    }
    let stores = [&store, &Database::open(state.path()).unwrap()];
    let claimed = std::thread::scope(|scope| {
        let claimers = (0..4_u32).map(|n| {
            let store = stores[n as usize % 2];
            scope.spawn(move || {
                let mut claimed = Vec::new();
                while let Some(task) = store.claim_next(PERSON, ANY, 10, &told).unwrap() {
                    store
                        .order(
                            task.id,
                            PERSON,
                            ClaimOrder::Finish(task.claim, &n.to_string()),
                            11,
                            &told,
                        )
                        .unwrap();
                    claimed.push((task.id, n));
                }
                claimed
            })
        });
        let claimers: Vec<_> = claimers.collect();
        claimers
            .into_iter()
            .flat_map(|claimer| claimer.join().unwrap())
            .collect::<Vec<_>>()
    });
    let by: BTreeMap<_, _> = claimed.iter().copied().collect();
    assert_eq!((claimed.len(), by.len()), (120, 120));
    for (id, n) in by {
        assert_eq!(store.task(id).unwrap().1, Some(n.to_string()));
    }
}

/// An operation in a random history.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Add,
    Next(u8),
    Start(u8),
    Finish(u8),
    Fail(u8),
    Release(u8),
    Cancel(u8),
    InstanceEnds(u8),
    Lapse,
    Restart,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => Just(Deed::Add),
        5 => (0..4_u8).prop_map(Deed::Next),
        2 => (0..4_u8).prop_map(Deed::Start),
        3 => (0..4_u8).prop_map(Deed::Finish),
        1 => (0..4_u8).prop_map(Deed::Fail),
        2 => (0..4_u8).prop_map(Deed::Release),
        1 => (0..8_u8).prop_map(Deed::Cancel),
        1 => (2..4_u8).prop_map(Deed::InstanceEnds),
        1 => Just(Deed::Lapse),
        1 => Just(Deed::Restart),
    ]
}

const SESSIONS: [&str; 2] = ["00000000000000aa", "00000000000000bb"];

/// Claimers 0 and 1 are people, 2 and 3 agents' instances of one of them.
fn claimer(n: u8) -> Actor<'static> {
    let session = usize::from(n)
        .checked_sub(2)
        .and_then(|at| SESSIONS.get(at).copied());
    Actor {
        groups: None,
        uid: if n == 1 { 1002 } else { 1001 },
        session,
        operator: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever happens in whatever order, a result is recorded once and by who has the claim,
    /// nothing is lost, and what has ended stays as it is; two stores on one file take turns.
    #[test]
    fn no_history_loses_or_doubles_anything(deeds in proptest::collection::vec((deed(), any::<bool>()), 1..80)) {
        let (state, first) = store();
        let other = Database::open(state.path()).unwrap();
        other.with(|c| c.pragma_update(None, "synchronous", "OFF")).unwrap();
        let mut hands: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
        let (mut added, mut done, mut now) = (BTreeSet::new(), BTreeMap::new(), 1_u64);
        for (deed, which) in deeds {
            let store = if which { &first } else { &other };
            now += 1;
            let held = |n: u8, hands: &BTreeMap<u8, (u64, u64)>| hands.get(&n).copied();
            let give = |n: u8, made: &dyn Fn(u64) -> ClaimOrder<'static>, hands: &BTreeMap<u8, (u64, u64)>| {
                held(n, hands).map(|(id, claim)| (id, store.order(id, claimer(n), made(claim), now, &told)))
            };
            match deed {
                Deed::Add => { added.insert(add(store, 5, if which { 1001 } else { 1002 }, &[])); }
                Deed::Next(n) => {
                    let lease_until = (n < 2).then_some(now + 20);
                    let seeks = Seeks { capabilities: None, lease_until, shared: false };
                    if let Some(task) = store.claim_next(claimer(n), seeks, now, &told).unwrap() {
                        prop_assert!(!done.contains_key(&task.id));
                        hands.insert(n, (task.id, task.claim));
                    }
                }
                Deed::Start(n) => { give(n, &|claim| ClaimOrder::Start(claim, Some(u64::MAX >> 1)), &hands); }
                Deed::Finish(n) => {
                    if let Some((id, Ok(_))) = give(n, &|claim| ClaimOrder::Finish(claim, "true"), &hands) {
                        prop_assert_eq!(done.insert(id, n), None, "finished twice");
                    }
                }
                Deed::Fail(n) => { give(n, &|claim| ClaimOrder::Fail(claim, "x"), &hands); }
                Deed::Release(n) => { give(n, &|claim| ClaimOrder::Release(claim, "x"), &hands); }
                Deed::Cancel(id) => {
                    let cancelled = store.order(id.into(), claimer(0), ClaimOrder::Cancel(""), now, &told);
                    prop_assert!(cancelled.is_err() || !done.contains_key(&u64::from(id)));
                }
                Deed::InstanceEnds(n) => {
                    store.requeue_of(claimer(n).session.unwrap(), "gone", now, &told).unwrap();
                }
                Deed::Lapse => { now += 20; store.requeue_lapsed(now, &told).unwrap(); }
                Deed::Restart => { store.requeue_all_instances("gone", now, &told).unwrap(); }
            }
        }
        let page = first.tasks(Actor::DAEMON, &TaskFilter::default(), MAX_PAGE, None).unwrap();
        prop_assert_eq!(page.tasks.iter().map(|task| task.id).collect::<BTreeSet<_>>(), added);
        for task in page.tasks {
            let (task, result) = first.task(task.id).unwrap();
            prop_assert_eq!(task.said.status == TaskStatus::Done, done.contains_key(&task.id));
            prop_assert_eq!(result.is_some(), done.contains_key(&task.id));
            prop_assert!(task.attempts <= MAX_ATTEMPTS);
            let has_ended = matches!(task.said.status, TaskStatus::Done | TaskStatus::Failed | TaskStatus::Cancelled);
            prop_assert_eq!(task.ended_at.is_some(), has_ended);
            prop_assert!(task.said.status != TaskStatus::Failed || task.reason.is_some());
        }
    }
}
