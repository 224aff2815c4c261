//! The display of records, and the amount that is read for it.

use std::fs;

use super::*;

#[test]
fn records_are_shown_by_what_is_asked_for() {
    use std::ops::ControlFlow;
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), small());
    calls(&trail, 24);
    drop(trail);
    let count = |filter: RecordFilter| {
        let mut numbers = Vec::new();
        show(&directory(dir.path()), &filter, None, &mut |record| {
            numbers.push(record.n);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(numbers.is_sorted());
        numbers.len()
    };
    let text = |t: &str| Some(t.to_owned());
    let all = count(RecordFilter::default());
    assert_eq!(
        count(RecordFilter {
            server: text("demo"),
            ..RecordFilter::default()
        }),
        48
    );
    assert_eq!(
        count(RecordFilter {
            uid: Some(1001),
            ..RecordFilter::default()
        }),
        24,
        "exits belong to the user of their enter"
    );
    assert_eq!(
        count(RecordFilter {
            uid: Some(7),
            ..RecordFilter::default()
        }),
        0
    );
    assert_eq!(
        count(RecordFilter {
            tool: text("tool1"),
            ..RecordFilter::default()
        }),
        16
    );
    assert_eq!(
        count(RecordFilter {
            result: text("FAIL"),
            ..RecordFilter::default()
        }),
        6
    );
    assert_eq!(
        count(RecordFilter {
            result: text("FAIL"),
            uid: Some(1001),
            ..RecordFilter::default()
        }),
        0
    );
    assert_eq!(
        count(RecordFilter {
            server: text("demo"),
            since: text("2026-11-21T22:30:12Z"),
            ..RecordFilter::default()
        }),
        24
    );
    assert_eq!(
        count(RecordFilter {
            server: text("demo"),
            until: text("2026-11-21T22:30:12"),
            ..RecordFilter::default()
        }),
        24
    );
    assert_eq!(
        count(RecordFilter {
            server: text("demo"),
            until: text("2026-11-21"),
            ..RecordFilter::default()
        }),
        0
    );
    assert!(all > 48);
    for (time, good) in [
        ("2026-11-21", true),
        ("2026-11-21T22:30:12.5Z", true),
        ("yesterday", false),
        ("2026-11-2", false),
    ] {
        assert_eq!(RecordFilter::is_time(time), good, "{time}");
    }

    let stats = stats(&directory(dir.path()), &RecordFilter::default()).unwrap();
    let row = &stats.rows[&("demo".to_owned(), "tool0".to_owned())];
    assert_eq!((row.calls, row.errors, row.retries), (8, 2, 0));
    assert_eq!(row.max_ms, 21.0);
    let median = row.quantile_ms(0.5).unwrap();
    assert!(
        (8.5..=9.5).contains(&median),
        "{median}: of 0, 3, 6 … 21 ms the fourth is 9 ms"
    );
}

#[test]
fn calls_are_found_by_the_name_of_their_client_and_their_ends_too() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), SegmentLimits::default());
    for (at, name) in [(0, Some("codex")), (1, Some("claude-code")), (2, None)] {
        let TrailRecord::Enter(call) = enter(at, 1001, "tool") else {
            unreachable!("an enter record");
        };
        let client = name.map(|name| DeclaredClient { name, version: "2" });
        let entered = trail
            .append([TrailRecord::Enter(Enter { client, ..call })])
            .unwrap();
        trail
            .append([exit(at, entered.first, "tool", true, 1)])
            .unwrap();
    }
    drop(trail);
    let filter = RecordFilter {
        client: Some("codex".to_owned()),
        ..RecordFilter::default()
    };
    let mut found = Vec::new();
    show(&directory(dir.path()), &filter, None, &mut |record| {
        let client = record.client.unwrap();
        found.push((record.kind, client.name.clone(), client.version.clone()));
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    let codex = |kind: &str| (kind.to_owned(), "codex".to_owned(), "2".to_owned());
    assert_eq!(found, [codex("enter"), codex("exit")]);
}

#[test]
fn the_last_records_are_read_from_the_end_of_a_segment() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), SegmentLimits::default());
    calls(&trail, 2000);
    let segment = trail.status().segment.unwrap();
    let last = |most: usize| {
        let mut seen = Vec::new();
        tail(&segment, most, &mut |record| {
            seen.push((record.n, record.uid))
        })
        .unwrap();
        seen
    };
    let ten = last(10);
    let records = trail.status().records;
    let numbers: Vec<u64> = ten.iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, (records - 10..records).collect::<Vec<_>>());
    assert!(ten.iter().any(|(_, uid)| uid.is_some()), "{ten:?}");
    assert!(last(0).is_empty());
    // Of a long segment only the end is read; what was only half written is passed over.
    assert!(fs::metadata(&segment).unwrap().len() > 256 * 1024);
    let all = last(usize::MAX);
    assert!(all.len() > 10 && all.len() < 4000 && all.last() == ten.last());
    let mut text = fs::read(&segment).unwrap();
    text.truncate(text.len() - 5);
    let torn = dir.path().join("torn");
    fs::write(&torn, &text).unwrap();
    let mut seen = Vec::new();
    tail(&torn, 3, &mut |record| seen.push(record.n)).unwrap();
    assert_eq!(seen, [records - 4, records - 3, records - 2]);
    fs::write(&torn, "no record\n\n{}\n").unwrap();
    tail(&torn, 3, &mut |record| panic!("{record:?}")).unwrap();
}

#[test]
fn the_last_records_that_pass_are_found_from_the_end() {
    use std::ops::ControlFlow;
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let limits = SegmentLimits {
        segment_bytes: 600_000,
        ..SegmentLimits::default()
    };
    let (trail, _) = open(dir.path(), limits);
    trail.append([enter(0, 77, "once")]).unwrap();
    calls(&trail, 2000);
    let path = directory(dir.path());
    assert!(segments(dir.path()).len() > 2);
    let all = |filter: &RecordFilter| {
        let mut seen = Vec::new();
        show(&path, filter, None, &mut |record| {
            seen.push((record.n, record.uid));
            ControlFlow::Continue(())
        })
        .unwrap();
        seen
    };
    let last = |filter: &RecordFilter, count: usize| {
        let mut seen = Vec::new();
        show_last(&path, filter, count, None, &mut |record| {
            seen.push((record.n, record.uid));
            ControlFlow::Continue(())
        })
        .unwrap();
        seen
    };
    let text = |text: &str| Some(text.to_owned());
    for filter in [
        RecordFilter::default(),
        RecordFilter {
            uid: Some(1001),
            ..RecordFilter::default()
        },
        RecordFilter {
            result: text("FAIL"),
            ..RecordFilter::default()
        },
        RecordFilter {
            tool: text("once"),
            ..RecordFilter::default()
        },
    ] {
        let all = all(&filter);
        for count in [0, 1, 7, 900] {
            let from = all.len().saturating_sub(count);
            assert!(last(&filter, count) == all[from..], "{filter:?} {count}");
        }
        let numbers =
            |seen: Vec<(u64, Option<u32>)>| seen.into_iter().map(|(n, _)| n).collect::<Vec<_>>();
        assert!(
            numbers(last(&filter, usize::MAX)) == numbers(all),
            "{filter:?}"
        );
    }

    // Followed, it goes on where it was.
    let (stop, mut seen) = (AtomicBool::new(false), Vec::new());
    let records = trail.status().records;
    show_last(
        &path,
        &RecordFilter::default(),
        2,
        Some(&stop),
        &mut |record| {
            seen.push(record.n);
            if seen.len() == 2 {
                calls(&trail, 1);
                stop.store(true, Ordering::Relaxed);
            }
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    assert_eq!(seen, (records - 2..records + 2).collect::<Vec<_>>());
}

#[test]
fn a_reader_goes_on_where_it_ended_over_segments_too() {
    use std::ops::ControlFlow;
    let dir = tempfile::tempdir().unwrap();
    let limits = SegmentLimits {
        segment_bytes: 4000,
        ..SegmentLimits::default()
    };
    let (trail, _) = open(dir.path(), limits);
    let mut reader = RecordReader::new(&directory(dir.path()), RecordFilter::default());
    let mut seen = Vec::new();
    for count in [0, 1, 0, 30, 2] {
        calls(&trail, count);
        let mut new = 0;
        let read = reader.read(&mut |record| {
            assert!(
                record.kind != "exit" || record.uid.is_some(),
                "whose call it was is known"
            );
            new += 1;
            seen.push(record.n);
            // What breaks off is read on as well.
            if new == 7 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if read.unwrap().is_break() {
            let rest = reader.read(&mut |record| {
                seen.push(record.n);
                ControlFlow::Continue(())
            });
            assert!(rest.unwrap().is_continue());
        }
        assert_eq!(seen.len() as u64, trail.status().records);
    }
    assert!(segments(dir.path()).len() > 2);
    assert_eq!(seen, (0..trail.status().records).collect::<Vec<_>>());
}

#[test]
fn segments_before_the_day_that_is_asked_for_are_not_read() {
    use std::ops::ControlFlow;
    const DAY: u64 = 86_400;
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), SegmentLimits::default());
    for day in [0, 1, 1, 2, 3, 3] {
        trail.append([enter(day * DAY, 1, "a")]).unwrap();
    }
    drop(trail);
    let path = directory(dir.path());
    // What stands there is no trail any more; who reads it shows nothing of it.
    let first = &segments(dir.path())[0];
    let whole = fs::read_to_string(first).unwrap();
    fs::write(
        first,
        whole.replace("2026-11-21T22:30:00", "2099-11-21T22:30:00"),
    )
    .unwrap();
    for (since, wanted) in [
        ("2026-11-23", 3),
        ("2026-11-23T22:30:00Z", 3),
        ("2026-11", 6),
        ("2026-11-24T22:30:01", 0),
    ] {
        let filter = RecordFilter {
            since: Some(since.to_owned()),
            server: Some("demo".to_owned()),
            ..RecordFilter::default()
        };
        let mut count = 0;
        show(&path, &filter, None, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        let mut last = 0;
        show_last(&path, &filter, 99, None, &mut |_| {
            last += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!((count, last), (wanted, wanted), "{since}");
    }
}

#[test]
fn calls_of_agents_are_found_by_agent_instance_and_person() {
    use std::ops::ControlFlow;
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), SegmentLimits::default());
    let (one, other) = ("0123456789abcdef", "fedcba9876543210");
    for (seconds, session, for_uid) in [(0, one, 1001), (10, other, 1002)] {
        let TrailRecord::Enter(by_person) = enter(seconds, 871, "tool") else {
            unreachable!();
        };
        let task = (for_uid == 1002).then_some(41);
        let through = Some(Through {
            agent: "coder",
            session,
            for_uid,
        });
        let number = trail
            .append([TrailRecord::Enter(Enter {
                through,
                task,
                ..by_person
            })])
            .unwrap()
            .first;
        trail
            .append([exit(seconds, number, "tool", true, 1)])
            .unwrap();
        let details = [
            ("agent", Detail::Text("coder")),
            ("session", Detail::Text(session)),
        ];
        let ended = EventRecord {
            time: time(seconds),
            event: "agent-ended",
            details: &details,
        };
        trail.append([TrailRecord::Event(ended)]).unwrap();
    }
    calls(&trail, 4);
    for (event, key) in [("task", "id"), ("task", "claim"), ("agent-started", "task")] {
        let details = [(key, Detail::Number(41))];
        let about = EventRecord {
            time: time(90),
            event,
            details: &details,
        };
        trail.append([TrailRecord::Event(about)]).unwrap();
    }
    drop(trail);
    let found = |filter: RecordFilter| {
        let mut found = Vec::new();
        let mut each = |record: RecordView<'_>| {
            let session = record.through.map(|agent| agent.session.clone());
            found.push((record.kind, session));
            ControlFlow::Continue(())
        };
        show(&directory(dir.path()), &filter, None, &mut each).unwrap();
        let all = std::mem::take(&mut found);
        let mut each = |record: RecordView<'_>| {
            let session = record.through.map(|agent| agent.session.clone());
            found.push((record.kind, session));
            ControlFlow::Continue(())
        };
        show_last(&directory(dir.path()), &filter, 100, None, &mut each).unwrap();
        assert_eq!(all, found, "from its end it is the same");
        all
    };
    let agent = |wanted: &str| RecordFilter {
        agent: Some(wanted.to_owned()),
        ..RecordFilter::default()
    };
    let call =
        |session: &str| ["enter", "exit"].map(|kind| (kind.to_owned(), Some(session.to_owned())));
    let ended = || ("event".to_owned(), None);
    let both = [&call(one)[..], &[ended()], &call(other), &[ended()]].concat();
    assert_eq!(found(agent("coder")), both);
    assert_eq!(found(agent(other)), [&call(other)[..], &[ended()]].concat());
    assert_eq!(found(agent("0123")), []);
    // Its person finds them too, whoever it runs as.
    let user = |uid| RecordFilter {
        uid: Some(uid),
        server: Some("demo".to_owned()),
        ..RecordFilter::default()
    };
    assert_eq!(found(user(1002)), call(other));
    assert_eq!(found(user(871)).len(), 4);
    assert_eq!(
        found(user(1001)).len(),
        2 + 4,
        "with the calls of the person"
    );
    // The calls made for a task, and the events about it.
    let for_task = RecordFilter {
        task: Some(41),
        ..RecordFilter::default()
    };
    assert_eq!(
        found(for_task),
        [&call(other)[..], &[ended(), ended()]].concat()
    );
}
