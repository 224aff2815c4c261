//! When the trail cannot be written, and what each fault is called.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use crate::testing::{calls, check, enter, exit, open, options, segments, small, sound};
use crate::*;

/// Waits so long that the next append looks what became of its segment.
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(2));
}

fn kinds(report: &Report) -> Vec<FaultKind> {
    report.faults.iter().map(|fault| fault.kind).collect()
}

#[test]
fn a_trail_is_written_sealed_and_taken_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), small());
    let none: [Record<'_>; 0] = [];
    assert_eq!(trail.append(none).unwrap().first, 0);
    assert_eq!(trail.append([enter(0, 1, "a"), enter(0, 1, "b")]).unwrap().first, 1);
    assert_eq!(trail.append([exit(1, 1, "a", true, 3)]).unwrap().first, 3);
    calls(&trail, 50);
    trail.close().unwrap();
    assert!(matches!(trail.append([enter(0, 1, "a")]), Err(TrailError::Closed)));
    let first = sound(dir.path(), &memory.heads());
    assert_eq!(first.records, first.promised_records);
    assert!(
        first.checkpoints > 10 && first.segments > 5 && first.notes.is_empty(),
        "{first:#?}"
    );
    drop(trail);

    let (trail, memory) = open(dir.path(), small());
    assert_eq!(trail.status().records, first.records);
    assert_eq!(
        segments(dir.path()).len() as u64,
        first.segments,
        "a sealed segment is taken up again"
    );
    calls(&trail, 3);
    drop(trail);
    let second = sound(dir.path(), &memory.heads());
    assert!(second.records >= first.records + 7);
    let text = fs::read_to_string(segments(dir.path()).last().unwrap()).unwrap();
    assert!(!text.contains("recovered"));
}

#[test]
fn days_end_segments() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), Limits::default());
    for day in [0, 0, 1, 1, 0, 3] {
        trail.append([enter(day * 86_400, 1, "a")]).unwrap();
    }
    drop(trail);
    let names: Vec<_> = segments(dir.path())
        .iter()
        .map(|p| p.file_stem().unwrap().to_owned())
        .collect();
    assert_eq!(
        names,
        ["0000000001-20261121", "0000000002-20261122", "0000000003-20261124"]
    );
    sound(dir.path(), &memory.heads());
}

#[test]
fn only_one_process_appends() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), small());
    assert!(matches!(
        Trail::open(options(dir.path(), small()).0),
        Err(TrailError::Locked(_))
    ));
    drop(trail);
    open(dir.path(), small());
}

#[test]
fn files_are_private() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), small());
    calls(&trail, 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&segments(dir.path())[0]) & !0o640, 0);
    assert_eq!(mode(&directory(dir.path())) & !0o750, 0);
    assert_eq!(mode(&key_path(dir.path())), 0o600);
}

#[test]
fn many_threads_append_to_one_chain() {
    let dir = tempfile::tempdir().unwrap();
    for sync in [false, true] {
        let (options, memory) = options(dir.path(), small());
        let trail = Trail::open(Options { sync, ..options }).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| calls(&trail, 50));
            }
        });
        if sync {
            assert_eq!(trail.status().synced, trail.status().records);
        }
        trail.close().unwrap();
        assert_eq!(trail.status().synced, trail.status().records);
        sound(dir.path(), &memory.heads());
    }
}

#[test]
fn heads_come_by_count_and_by_time() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        witness_records: 1000,
        seal_records: 1 << 20,
        ..Limits::default()
    };
    let (trail, memory) = open(dir.path(), limits);
    calls(&trail, 600);
    memory.wait_for(1000);
    drop(trail);
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(
        dir.path(),
        Limits {
            witness_after: std::time::Duration::ZERO,
            ..limits
        },
    );
    trail.append([enter(0, 1, "a")]).unwrap();
    memory.wait_for(2);
    drop(trail);
}

/// Replaces text in one segment.
fn edit(path: &Path, change: impl FnOnce(Vec<String>) -> Vec<String>) {
    let lines = fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
    let changed: String = change(lines).into_iter().map(|line| line + "\n").collect();
    fs::write(path, changed).unwrap();
}

#[test]
fn faults_are_named_by_segment_line_and_kind() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), small());
    calls(&trail, 40);
    drop(trail);
    let heads = memory.heads();
    let paths = segments(dir.path());
    let (first, second) = (&paths[0], &paths[1]);
    let expect = |place: &Path, line: Option<u64>, kind: FaultKind| {
        let report = check(dir.path(), &heads);
        let fault = &report.faults[0];
        assert_eq!(fault.kind, kind, "{report:#?}");
        assert_eq!(
            fault.segment.as_deref(),
            place.file_stem().and_then(|s| s.to_str()),
            "{report:#?}"
        );
        assert_eq!(fault.line, line, "{report:#?}");
    };
    let whole = fs::read(second).unwrap();
    let restore = || fs::write(second, &whole).unwrap();

    edit(second, |mut lines| {
        lines[2] = lines[2]
            .replace("\"uid\":100", "\"uid\":200")
            .replace("\"operation\":\"t", "\"operation\":\"T");
        lines
    });
    expect(second, Some(3), FaultKind::EditedRecord);
    assert_eq!(check(dir.path(), &heads).fault_count, 1, "one fault is named once");
    restore();
    edit(second, |mut lines| {
        lines.remove(2);
        lines
    });
    expect(second, Some(3), FaultKind::MissingRecord);
    assert_eq!(check(dir.path(), &heads).fault_count, 1);
    restore();
    edit(second, |mut lines| {
        lines.insert(4, lines[2].clone());
        lines
    });
    expect(second, Some(5), FaultKind::InsertedRecord);
    restore();
    edit(second, |mut lines| {
        lines.swap(2, 3);
        lines
    });
    expect(second, Some(4), FaultKind::ReorderedRecord);
    restore();
    edit(second, |mut lines| {
        lines[1] = "{}".into();
        lines
    });
    expect(second, Some(2), FaultKind::MalformedLine);
    restore();
    fs::write(second, &whole[..whole.len() - 1]).unwrap();
    expect(
        second,
        Some(String::from_utf8_lossy(&whole).lines().count() as u64),
        FaultKind::TornTail,
    );
    restore();
    fs::remove_file(second).unwrap();
    expect(&paths[2], None, FaultKind::MissingSegment);
    restore();
    fs::rename(first, first.with_file_name("0000000002-20261120.jsonl")).unwrap();
    let report = check(dir.path(), &heads);
    assert!(kinds(&report).contains(&FaultKind::InsertedSegment), "{report:#?}");
    fs::rename(first.with_file_name("0000000002-20261120.jsonl"), first).unwrap();
    for path in &paths[3..] {
        fs::remove_file(path).unwrap();
    }
    expect(
        &paths[2],
        Some(fs::read_to_string(&paths[2]).unwrap().lines().count() as u64),
        FaultKind::Truncated,
    );
    let report = check(dir.path(), &heads);
    assert!(report.promised_records > 0 && report.promised_records <= report.records);
}

#[test]
fn another_installations_checkpoints_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    for state_dir in [dir.path(), other.path()] {
        let (trail, _) = open(state_dir, small());
        calls(&trail, 10);
    }
    let verifier = fs::read_to_string(verifier_path(other.path()))
        .unwrap()
        .parse()
        .unwrap();
    let report = verify(
        &directory(dir.path()),
        Extent::Whole,
        Some(&verifier),
        &WitnessedHeads::default(),
    )
    .unwrap();
    assert!(kinds(&report).iter().all(|kind| *kind == FaultKind::BadCheckpoint) && !report.is_sound());
}

#[test]
fn a_segment_touched_by_somebody_else_is_left() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), Limits::default());
    calls(&trail, 2);
    let path = segments(dir.path()).pop().unwrap();
    fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(b"garbage\n")
        .unwrap();
    pause();
    let error = trail.append([enter(0, 1, "a")]).unwrap_err();
    assert!(error.to_string().contains("was written to by somebody else"), "{error}");
    assert!(trail.status().failing.is_some());
    calls(&trail, 2);
    assert!(trail.status().failing.is_none());
    drop(trail);
    let report = check(dir.path(), &memory.heads());
    assert_eq!(kinds(&report), [FaultKind::DamagedTail], "{report:#?}");
}

#[test]
fn a_removed_directory_refuses_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), Limits::default());
    calls(&trail, 3);
    let records = trail.status().records;
    fs::remove_dir_all(directory(dir.path())).unwrap();
    pause();
    // The file is open and takes the write; nothing would ever be seen of it again.
    let error = trail.append([enter(0, 1, "a")]).unwrap_err();
    assert!(error.to_string().contains("was removed"), "{error}");
    for _ in 0..3 {
        let error = trail.append([enter(0, 1, "a")]).unwrap_err();
        assert!(error.to_string().contains("make the directory again"), "{error}");
    }
    fs::create_dir(directory(dir.path())).unwrap();
    assert_eq!(
        trail.append([enter(0, 1, "a")]).unwrap().first,
        records + 1,
        "a recovered record comes first"
    );
    drop(trail);
    let text = fs::read_to_string(&segments(dir.path())[0]).unwrap();
    assert!(text.lines().next().unwrap().contains("\"kind\":\"recovered\""));
    let report = check(dir.path(), &memory.heads());
    assert!(kinds(&report).contains(&FaultKind::MissingSegment), "{report:#?}");
}

/// A small file system of its own, unmounted when dropped. `None`, said aloud, where the test does not run as root.
#[cfg(target_os = "linux")]
struct Mounted(tempfile::TempDir);

#[cfg(target_os = "linux")]
impl Mounted {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k,mode=0755", "tmpfs"])
            .arg(dir.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if mounted {
            return Some(Self(dir));
        }
        assert!(
            std::env::var_os("COLIBRI_TEST_REQUIRE_ROOT").is_none(),
            "this test needs root to mount a tmpfs"
        );
        eprintln!("skipped: mounting a small tmpfs needs root");
        None
    }

    fn remount(&self, how: &str) {
        let option = format!("remount,{how}");
        let status = std::process::Command::new("mount")
            .args(["-o", &option])
            .arg(self.0.path())
            .status()
            .unwrap();
        assert!(status.success(), "mount -o {option}");
    }
}

#[cfg(target_os = "linux")]
impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_and_a_read_only_disk_refuse_until_they_are_not() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let state_dir = mounted.0.path();
    let (trail, memory) = open(state_dir, Limits::default());
    calls(&trail, 3);
    // All but a part of a batch fits: the write is cut short.
    let ballast = state_dir.join("ballast");
    let mut refused = None;
    let batch: Vec<_> = (0..20).map(|_| enter(0, 1, "tool")).collect();
    for _ in 0..200 {
        if let Err(error) = trail.append(&batch) {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.expect("256 KiB were never full").to_string();
    assert!(
        refused.contains("No space left on device") && refused.contains("free space"),
        "{refused}"
    );
    let records = trail.status().records;
    let files = segments(state_dir).len();
    for _ in 0..10 {
        assert!(trail.append(&batch).is_err());
    }
    assert_eq!(trail.status().records, records, "nothing is half counted");
    assert_eq!(segments(state_dir).len(), files, "attempts leave no files");

    // A file that is open for writing keeps a file system writable: wait until the segment given up is synced.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while trail.status().synced < records {
        assert!(std::time::Instant::now() < deadline, "never synced");
        std::thread::yield_now();
    }
    mounted.remount("ro");
    let refused = trail.append(&batch).unwrap_err().to_string();
    assert!(
        refused.contains("Read-only file system") && refused.contains("mount that file system"),
        "{refused}"
    );
    mounted.remount("rw,size=1m");
    fs::write(&ballast, b"x").unwrap();
    assert_eq!(trail.append(&batch).unwrap().first, records + 1);
    calls(&trail, 3);
    drop(trail);
    let report = sound(state_dir, &memory.heads());
    assert_eq!(report.segments, 2);
    let text = fs::read_to_string(segments(state_dir).last().unwrap()).unwrap();
    let first = text.lines().next().unwrap();
    assert!(
        first.contains("\"kind\":\"recovered\"") && first.contains("\"torn\":[{\"segment\":\"0000000001-"),
        "{first}"
    );
}

#[test]
fn proofs_hold_elsewhere_and_only_for_what_they_prove() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), small());
    calls(&trail, 40);
    drop(trail);
    let report = check(dir.path(), &WitnessedHeads::default());
    let trail = directory(dir.path());
    let verifier = fs::read_to_string(verifier_path(dir.path())).unwrap().parse().unwrap();
    for n in 0..report.records - 1 {
        let proof = prove(&trail, n).unwrap();
        assert!(proof.record.starts_with(&format!("{{\"n\":{n},")));
        let text = serde_json::to_string(&proof).unwrap();
        check_proof(&text, Some(&proof.root), None).unwrap();
        check_proof(&text, None, Some(&verifier)).unwrap();
        assert!(matches!(check_proof(&text, None, None), Err(ProofError::NoAnchor)));
        let other = "0".repeat(64);
        assert!(matches!(
            check_proof(&text, Some(&other), None),
            Err(ProofError::Root(_))
        ));
        for changed in [
            Proof {
                record: proof.record.replace("\"n\"", "\"N\""),
                ..proof.clone()
            },
            Proof {
                leaf_index: n + 1,
                ..proof.clone()
            },
            Proof {
                tree_size: proof.tree_size + 1,
                ..proof.clone()
            },
            Proof {
                path: proof.path.iter().skip(1).cloned().collect(),
                ..proof.clone()
            },
            Proof {
                checkpoint: proof.checkpoint.replace("\n\n", "\nx\n\n"),
                ..proof.clone()
            },
            Proof {
                format: "x".into(),
                ..proof.clone()
            },
        ] {
            let text = serde_json::to_string(&changed).unwrap();
            assert!(
                check_proof(&text, Some(&proof.root), Some(&verifier)).is_err(),
                "{text}"
            );
        }
    }
    assert!(
        matches!(prove(&trail, report.records - 1), Err(ProofError::NotSealed(_))),
        "the last seal itself"
    );
    assert!(matches!(prove(&trail, report.records), Err(ProofError::NoRecord(_))));
}

#[test]
fn retention_drops_segments_and_leaves_what_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), Limits::default());
    for day in 0..10 {
        trail
            .append([enter(day * 86_400, 1, "a"), enter(day * 86_400, 1, "b")])
            .unwrap();
    }
    drop(trail);
    let path = directory(dir.path());
    let before = sound(dir.path(), &memory.heads());
    let now = testing::time(9 * 86_400);
    let day = std::time::Duration::from_secs(86_400);
    assert!(drop_segments(&path, day * 30, now).unwrap().segments.is_empty());
    let dropped = drop_segments(&path, day * 4, now).unwrap();
    assert_eq!(
        dropped.segments.len(),
        4,
        "a segment goes when the one after it was begun more than four days ago"
    );
    assert!(dropped.bytes > 1000);
    let report = sound(dir.path(), &memory.heads());
    assert_eq!((report.records, &report.head), (before.records, &before.head));
    assert_eq!(report.segments, 6);
    assert!(
        report.first_record > 8 && report.notes[0].contains("4 segments were dropped"),
        "{report:#?}"
    );
    prove(&path, report.first_record + 1).unwrap();
    assert!(matches!(
        prove(&path, report.first_record - 1),
        Err(ProofError::NoRecord(_))
    ));

    // The trail goes on, and a missing or foreign seal is found.
    let (trail, memory) = open(dir.path(), Limits::default());
    calls(&trail, 2);
    drop(trail);
    sound(dir.path(), &memory.heads());
    let seal = path.join("0000000004-20261124.seal");
    let kept = fs::read(&seal).unwrap();
    fs::remove_file(&seal).unwrap();
    assert!(kinds(&check(dir.path(), &memory.heads())).contains(&FaultKind::MissingSegment));
    fs::copy(path.join("0000000003-20261123.seal"), &seal).unwrap();
    let report = check(dir.path(), &memory.heads());
    assert_eq!(kinds(&report), [FaultKind::MissingRecord], "{report:#?}");
    fs::write(&seal, kept).unwrap();
    sound(dir.path(), &memory.heads());
    assert!(
        !drop_segments(&path, std::time::Duration::ZERO, testing::time(99 * 86_400))
            .unwrap()
            .segments
            .is_empty()
    );
    assert_eq!(segments(dir.path()).len(), 1, "the last segment always stays");
    sound(dir.path(), &memory.heads());
}

#[test]
fn records_are_shown_by_what_is_asked_for() {
    use std::ops::ControlFlow;
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), small());
    calls(&trail, 24);
    drop(trail);
    let count = |filter: Filter| {
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
    let all = count(Filter::default());
    assert_eq!(
        count(Filter {
            server: text("demo"),
            ..Filter::default()
        }),
        48
    );
    assert_eq!(
        count(Filter {
            uid: Some(1001),
            ..Filter::default()
        }),
        24,
        "exits belong to the user of their enter"
    );
    assert_eq!(
        count(Filter {
            uid: Some(7),
            ..Filter::default()
        }),
        0
    );
    assert_eq!(
        count(Filter {
            tool: text("tool1"),
            ..Filter::default()
        }),
        16
    );
    assert_eq!(
        count(Filter {
            result: text("FAIL"),
            ..Filter::default()
        }),
        6
    );
    assert_eq!(
        count(Filter {
            result: text("FAIL"),
            uid: Some(1001),
            ..Filter::default()
        }),
        0
    );
    assert_eq!(
        count(Filter {
            server: text("demo"),
            since: text("2026-11-21T22:30:12Z"),
            ..Filter::default()
        }),
        24
    );
    assert_eq!(
        count(Filter {
            server: text("demo"),
            until: text("2026-11-21T22:30:12"),
            ..Filter::default()
        }),
        24
    );
    assert_eq!(
        count(Filter {
            server: text("demo"),
            until: text("2026-11-21"),
            ..Filter::default()
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
        assert_eq!(Filter::is_time(time), good, "{time}");
    }

    let stats = stats(&directory(dir.path()), &Filter::default()).unwrap();
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
fn retention_drops_a_segment_with_a_torn_tail_too() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    for day in 0..4 {
        let (trail, memory) = open(dir.path(), Limits::default());
        trail
            .append([enter(day * 86_400, 1, "a"), enter(day * 86_400, 1, "b")])
            .unwrap();
        drop(trail);
        sound(dir.path(), &memory.heads());
        let last = segments(dir.path()).pop().unwrap();
        fs::OpenOptions::new()
            .append(true)
            .open(last)
            .unwrap()
            .write_all(b"{\"hash\":\"")
            .unwrap();
    }
    let (path, day) = (directory(dir.path()), std::time::Duration::from_secs(86_400));
    let dropped = drop_segments(&path, day, testing::time(3 * 86_400)).unwrap();
    assert_eq!(dropped.segments.len(), 1);
    assert!(
        fs::read_to_string(&segments(dir.path())[0])
            .unwrap()
            .contains("\"kind\":\"recovered\"")
    );
    sound(dir.path(), &WitnessedHeads::default());
    let (trail, memory) = open(dir.path(), Limits::default());
    calls(&trail, 2);
    drop(trail);
    sound(dir.path(), &memory.heads());
}

#[test]
fn a_process_killed_between_making_a_segment_and_its_first_record_leaves_a_sound_trail() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), Limits::default());
    calls(&trail, 2);
    drop(trail);
    let first = segments(dir.path()).pop().unwrap();
    fs::OpenOptions::new()
        .append(true)
        .open(&first)
        .unwrap()
        .write_all(b"{\"hash")
        .unwrap();
    for (ordinal, bytes) in [(2, ""), (3, "{\"hash\":\"00")] {
        fs::write(
            first.with_file_name(format!("000000000{ordinal}-20261121.jsonl")),
            bytes,
        )
        .unwrap();
        let report = sound(dir.path(), &memory.heads());
        assert!(report.notes[0].contains("interrupted write"), "{report:#?}");
    }
    let far = testing::time(999 * 86_400);
    let dropped = drop_segments(&directory(dir.path()), std::time::Duration::ZERO, far).unwrap();
    assert!(dropped.segments.is_empty(), "the only records there are");
    assert!(sealed_segments(&directory(dir.path())).unwrap().is_empty());
    let (trail, memory) = open(dir.path(), Limits::default());
    calls(&trail, 2);
    drop(trail);
    let report = sound(dir.path(), &memory.heads());
    assert_eq!((report.segments, report.notes.len()), (4, 0));
}

#[test]
fn the_last_records_are_read_from_the_end_of_a_segment() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), Limits::default());
    calls(&trail, 2000);
    let segment = trail.status().segment.unwrap();
    let last = |most: usize| {
        let mut seen = Vec::new();
        tail(&segment, most, &mut |record| seen.push((record.n, record.uid))).unwrap();
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

/// Puts a FIFO at `path`.
fn fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// What `work` returns; panics if it is held up.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver
        .recv_timeout(std::time::Duration::from_secs(60))
        .expect("it waits for a FIFO's writer")
}

#[test]
fn what_is_no_regular_file_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), small());
    calls(&trail, 2);
    drop(trail);
    let state_dir = dir.path().to_owned();
    let path = directory(&state_dir);
    for name in [
        "0000000000-20200101.jsonl",
        "9999999999-20300101.jsonl",
        "0000000000-20200101.seal",
    ] {
        let planted = path.join(name);
        fifo(&planted);
        let (dir, heads) = (path.clone(), WitnessedHeads::default());
        let error = in_time(move || verify(&dir, Extent::Whole, None, &heads)).unwrap_err();
        assert!(error.to_string().contains("is not a regular file"), "{name}: {error}");
        if name.ends_with(".jsonl") {
            let dir = path.clone();
            assert!(matches!(in_time(move || prove(&dir, 1)), Err(ProofError::Io(_))));
            let dir = path.clone();
            let last = in_time(move || last_seal(&dir, SegmentName::parse(name, "jsonl").unwrap()));
            last.unwrap_err();
            in_time(move || tail(&planted, 1, &mut |_| ())).unwrap_err();
        }
        if name.starts_with('9') {
            let state_dir = state_dir.clone();
            in_time(move || Trail::open(options(&state_dir, small()).0)).unwrap_err();
        }
        fs::remove_file(path.join(name)).unwrap();
    }
    let note = note_path(&state_dir);
    fs::remove_file(&note).unwrap();
    fifo(&note);
    in_time(move || WitnessedHeads::default().read_note(&note, None)).unwrap_err();
}

/// What verify says where the log is not asked.
fn noted(state_dir: &Path) -> Report {
    let mut heads = WitnessedHeads::default();
    let verifier = fs::read_to_string(verifier_path(state_dir)).unwrap().parse().unwrap();
    heads.read_note(&note_path(state_dir), Some(&verifier)).unwrap();
    verify(&directory(state_dir), Extent::Whole, Some(&verifier), &heads).unwrap()
}

#[test]
fn removed_segments_are_missed_without_a_witness_too() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = dir.path();
    let (trail, _) = open(state_dir, small());
    let report = noted(state_dir);
    let vouched = |records| {
        vec![Vouched {
            by: Voucher::Note,
            records,
        }]
    };
    assert_eq!((report.is_sound(), report.vouched_by), (true, vouched(0)));
    calls(&trail, 40);
    drop(trail);
    let whole = noted(state_dir);
    assert!(whole.is_sound(), "{whole:#?}");
    assert_eq!(whole.vouched_by, vouched(whole.records));
    assert_eq!(whole.promised_records, 0, "the daemon's user can change the note");

    // The last segment, then all of them.
    let paths = segments(state_dir);
    let kept: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    for gone in [&paths[paths.len() - 1..], &paths[..]] {
        for path in gone {
            let _ = fs::remove_file(path);
        }
        let report = noted(state_dir);
        assert_eq!(kinds(&report), [FaultKind::Truncated], "{report:#?}");
        assert!(report.vouched_by.is_empty());
        assert!(
            check(state_dir, &WitnessedHeads::default()).is_sound(),
            "nobody else knows"
        );
        // A daemon that went on would note the shorter trail.
        let error = Trail::open(options(state_dir, small()).0).unwrap_err();
        assert!(matches!(error, TrailError::Cut { .. }), "{error}");
        assert!(error.to_string().contains("records were removed or changed"), "{error}");
    }
    for (path, bytes) in paths.iter().zip(kept) {
        fs::write(path, bytes).unwrap();
    }
    assert!(noted(state_dir).is_sound());

    // Other records in their place, chained as they should be.
    let before = (
        fs::read(paths.last().unwrap()).unwrap(),
        fs::read(note_path(state_dir)).unwrap(),
    );
    let again = |user| {
        fs::write(paths.last().unwrap(), &before.0).unwrap();
        fs::write(note_path(state_dir), &before.1).unwrap();
        let (trail, _) = open(state_dir, Limits::default());
        trail.append([enter(0, user, "a")]).unwrap();
        drop(trail);
        fs::read(note_path(state_dir)).unwrap()
    };
    let first = again(1);
    again(2);
    fs::write(note_path(state_dir), first).unwrap();
    assert_eq!(kinds(&noted(state_dir)), [FaultKind::Rewritten]);
    let error = Trail::open(options(state_dir, small()).0).unwrap_err();
    assert!(error.to_string().contains("has another record"), "{error}");

    // A note that is not this installation's, an empty one and none vouch for nothing.
    for text in ["trail-head records=1 hash=0 root=0 origin=x sig=x\n", ""] {
        fs::write(note_path(state_dir), text).unwrap();
        let report = noted(state_dir);
        assert!(report.is_sound() && report.vouched_by.is_empty(), "{report:#?}");
    }
    fs::remove_file(note_path(state_dir)).unwrap();
    let report = noted(state_dir);
    assert!(report.is_sound() && report.vouched_by.is_empty(), "{report:#?}");
}

#[test]
fn a_clock_that_went_ahead_and_back_leaves_no_segment_open_for_the_future() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), Limits::default());
    const DAY: u64 = 86_400;
    // A year ahead and back, as a clock without a battery does; then on.
    for day in [0, 365, 0, 0, 1, 2] {
        trail.append([enter(day * DAY, 1, "a")]).unwrap();
    }
    drop(trail);
    let names = || -> Vec<_> {
        let names = segments(dir.path()).into_iter();
        names
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names(),
        [
            "0000000001-20261121",
            "0000000002-20271121",
            "0000000003-20261121",
            "0000000004-20261122",
            "0000000005-20261123"
        ]
    );
    sound(dir.path(), &memory.heads());
    // The segment named for next year holds no other back, and is itself as old as its neighbours.
    let (path, day) = (directory(dir.path()), std::time::Duration::from_secs(DAY));
    let dropped = drop_segments(&path, day, testing::time(3 * DAY)).unwrap();
    assert_eq!(dropped.segments.len(), 3, "{dropped:?}");
    assert_eq!(names(), ["0000000004-20261122", "0000000005-20261123"]);
    sound(dir.path(), &memory.heads());
}

#[test]
fn a_clock_that_was_set_back_lets_no_segment_go_early() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), Limits::default());
    let epoch = SystemTime::UNIX_EPOCH;
    for time in [testing::time(0), epoch, testing::time(0)] {
        let Record::Enter(enter) = enter(0, 1, "a") else {
            panic!("another kind")
        };
        trail.append([Record::Enter(Enter { time, ..enter })]).unwrap();
    }
    drop(trail);
    assert_eq!(segments(dir.path()).len(), 3);
    let week = std::time::Duration::from_secs(7 * 86_400);
    let dropped = drop_segments(&directory(dir.path()), week, testing::time(86_400)).unwrap();
    assert!(dropped.segments.is_empty(), "{dropped:?}");
}

#[test]
fn the_last_records_that_pass_are_found_from_the_end() {
    use std::ops::ControlFlow;
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        segment_bytes: 600_000,
        ..Limits::default()
    };
    let (trail, _) = open(dir.path(), limits);
    trail.append([enter(0, 77, "once")]).unwrap();
    calls(&trail, 2000);
    let path = directory(dir.path());
    assert!(segments(dir.path()).len() > 2);
    let all = |filter: &Filter| {
        let mut seen = Vec::new();
        show(&path, filter, None, &mut |record| {
            seen.push((record.n, record.uid));
            ControlFlow::Continue(())
        })
        .unwrap();
        seen
    };
    let last = |filter: &Filter, count: usize| {
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
        Filter::default(),
        Filter {
            uid: Some(1001),
            ..Filter::default()
        },
        Filter {
            result: text("FAIL"),
            ..Filter::default()
        },
        Filter {
            tool: text("once"),
            ..Filter::default()
        },
    ] {
        let all = all(&filter);
        for count in [0, 1, 7, 900] {
            let from = all.len().saturating_sub(count);
            assert!(last(&filter, count) == all[from..], "{filter:?} {count}");
        }
        let numbers = |seen: Vec<(u64, Option<u32>)>| seen.into_iter().map(|(n, _)| n).collect::<Vec<_>>();
        assert!(numbers(last(&filter, usize::MAX)) == numbers(all), "{filter:?}");
    }

    // Followed, it goes on where it was.
    let (stop, mut seen) = (AtomicBool::new(false), Vec::new());
    let records = trail.status().records;
    show_last(&path, &Filter::default(), 2, Some(&stop), &mut |record| {
        seen.push(record.n);
        if seen.len() == 2 {
            calls(&trail, 1);
            stop.store(true, Ordering::Relaxed);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(seen, (records - 2..records + 2).collect::<Vec<_>>());
}

#[test]
fn segments_before_the_day_that_is_asked_for_are_not_read() {
    use std::ops::ControlFlow;
    const DAY: u64 = 86_400;
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), Limits::default());
    for day in [0, 1, 1, 2, 3, 3] {
        trail.append([enter(day * DAY, 1, "a")]).unwrap();
    }
    drop(trail);
    let path = directory(dir.path());
    // What stands there is no trail any more; who reads it shows nothing of it.
    let first = &segments(dir.path())[0];
    let whole = fs::read_to_string(first).unwrap();
    fs::write(first, whole.replace("2026-11-21T22:30:00", "2099-11-21T22:30:00")).unwrap();
    for (since, wanted) in [
        ("2026-11-23", 3),
        ("2026-11-23T22:30:00Z", 3),
        ("2026-11", 6),
        ("2026-11-24T22:30:01", 0),
    ] {
        let filter = Filter {
            since: Some(since.to_owned()),
            server: Some("demo".to_owned()),
            ..Filter::default()
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
fn a_trail_of_format_1_is_refused_by_everybody() {
    use sha2::{Digest as _, Sha256};
    let dir = tempfile::tempdir().unwrap();
    let path = directory(dir.path());
    fs::create_dir_all(&path).unwrap();
    let (prev, rec) = (
        "0".repeat(64),
        r#"{"n":0,"kind":"open","timestamp":"2026-11-21T22:30:00.000000Z"}"#,
    );
    let hash = colibri_text::hex(&Sha256::digest(format!("{prev}\n{rec}")));
    let line = format!("{{\"hash\":\"{hash}\",\"prev\":\"{prev}\",\"rec\":{rec}}}\n");
    fs::write(path.join("0000000001-20261121.jsonl"), line).unwrap();
    let refusals = [
        Trail::open(options(dir.path(), small()).0).unwrap_err().to_string(),
        verify(&path, Extent::Whole, None, &WitnessedHeads::default())
            .unwrap_err()
            .to_string(),
        prove(&path, 0).unwrap_err().to_string(),
        sealed_segments(&path).unwrap_err().to_string(),
    ];
    for refusal in refusals {
        assert!(
            refusal.contains("segment 0000000001-20261121 is of format 1") && refusal.contains("aside"),
            "{refusal}"
        );
    }
}

#[test]
fn status_waits_for_no_write() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), small());
    calls(&trail, 1);
    let before = trail.status();
    // An append that takes as long as this test: its records are made while others wait.
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (begun, wait) = std::sync::mpsc::channel();
        let trail = &trail;
        scope.spawn(move || {
            let records = std::iter::once_with(|| {
                begun.send(()).unwrap();
                receiver.recv().unwrap();
                enter(0, 1, "slow")
            });
            trail.append(records).unwrap();
        });
        wait.recv().unwrap();
        let status = trail.status();
        assert_eq!((status.records, status.segment), (before.records, before.segment));
        sender.send(()).unwrap();
    });
    assert_eq!(trail.status().records, before.records + 1);
}
