//! Appending: the records, their authors, their times, and their place.

use std::fs;
use std::path::Path;

use super::*;

#[test]
fn a_trail_is_written_sealed_and_taken_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), small());
    let none: [TrailRecord<'_>; 0] = [];
    assert_eq!(trail.append(none).unwrap().first, 0);
    assert_eq!(
        trail
            .append([enter(0, 1, "a"), enter(0, 1, "b")])
            .unwrap()
            .first,
        1
    );
    assert_eq!(trail.append([exit(1, 1, "a", true, 3)]).unwrap().first, 3);
    calls(&trail, 50);
    trail.close().unwrap();
    assert!(matches!(
        trail.append([enter(0, 1, "a")]),
        Err(TrailError::Closed)
    ));
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
    let (trail, memory) = open(dir.path(), SegmentLimits::default());
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
        [
            "0000000001-20261121",
            "0000000002-20261122",
            "0000000003-20261124"
        ]
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
        let trail = Trail::open(TrailOptions { sync, ..options }).unwrap();
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
    let limits = SegmentLimits {
        witness_records: 1000,
        seal_records: 1 << 20,
        ..SegmentLimits::default()
    };
    let (trail, memory) = open(dir.path(), limits);
    calls(&trail, 600);
    memory.wait_for(1000);
    drop(trail);
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(
        dir.path(),
        SegmentLimits {
            witness_after: std::time::Duration::ZERO,
            ..limits
        },
    );
    trail.append([enter(0, 1, "a")]).unwrap();
    memory.wait_for(2);
    drop(trail);
}

#[test]
fn a_clock_that_went_ahead_and_back_leaves_no_segment_open_for_the_future() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), SegmentLimits::default());
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
    let dropped = drop_segments(&path, day, super::time(3 * DAY)).unwrap();
    assert_eq!(dropped.segments.len(), 3, "{dropped:?}");
    assert_eq!(names(), ["0000000004-20261122", "0000000005-20261123"]);
    sound(dir.path(), &memory.heads());
}

#[test]
fn a_process_killed_between_making_a_segment_and_its_first_record_leaves_a_sound_trail() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), SegmentLimits::default());
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
    let far = super::time(999 * 86_400);
    let dropped = drop_segments(&directory(dir.path()), std::time::Duration::ZERO, far).unwrap();
    assert!(dropped.segments.is_empty(), "the only records there are");
    assert!(sealed_segments(&directory(dir.path())).unwrap().is_empty());
    let (trail, memory) = open(dir.path(), SegmentLimits::default());
    calls(&trail, 2);
    drop(trail);
    let report = sound(dir.path(), &memory.heads());
    assert_eq!((report.segments, report.notes.len()), (4, 0));
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
        assert_eq!(
            (status.records, status.segment),
            (before.records, before.segment)
        );
        sender.send(()).unwrap();
    });
    assert_eq!(trail.status().records, before.records + 1);
}
