//! Retention: what goes in time, and what stays.

use std::fs;
use std::time::SystemTime;

use super::*;

#[test]
fn retention_drops_segments_and_leaves_what_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), SegmentLimits::default());
    for day in 0..10 {
        trail
            .append([enter(day * 86_400, 1, "a"), enter(day * 86_400, 1, "b")])
            .unwrap();
    }
    drop(trail);
    let path = directory(dir.path());
    let before = sound(dir.path(), &memory.heads());
    let now = super::time(9 * 86_400);
    let day = std::time::Duration::from_secs(86_400);
    assert!(
        drop_segments(&path, day * 30, now)
            .unwrap()
            .segments
            .is_empty()
    );
    let dropped = drop_segments(&path, day * 4, now).unwrap();
    assert_eq!(
        dropped.segments.len(),
        4,
        "a segment goes when the one after it was begun more than four days ago"
    );
    assert!(dropped.bytes > 1000);
    let report = sound(dir.path(), &memory.heads());
    assert_eq!(
        (report.records, &report.head),
        (before.records, &before.head)
    );
    assert_eq!(report.segments, 6);
    assert!(
        report.first_record > 8 && report.notes[0].contains("4 segments were dropped"),
        "{report:#?}"
    );
    prove(&path, report.first_record + 1, None).unwrap();
    assert!(matches!(
        prove(&path, report.first_record - 1, None),
        Err(ProofError::NoRecord(_))
    ));

    // The trail goes on, and a missing or foreign seal is found.
    let (trail, memory) = open(dir.path(), SegmentLimits::default());
    calls(&trail, 2);
    drop(trail);
    sound(dir.path(), &memory.heads());
    let seal = path.join("0000000004-20261124.seal");
    let kept = fs::read(&seal).unwrap();
    fs::remove_file(&seal).unwrap();
    assert!(kinds(&check(dir.path(), &memory.heads())).contains(&TrailFaultKind::MissingSegment));
    fs::copy(path.join("0000000003-20261123.seal"), &seal).unwrap();
    let report = check(dir.path(), &memory.heads());
    assert_eq!(
        kinds(&report),
        [TrailFaultKind::MissingRecord],
        "{report:#?}"
    );
    fs::write(&seal, kept).unwrap();
    sound(dir.path(), &memory.heads());
    assert!(
        !drop_segments(&path, std::time::Duration::ZERO, super::time(99 * 86_400))
            .unwrap()
            .segments
            .is_empty()
    );
    assert_eq!(
        segments(dir.path()).len(),
        1,
        "the last segment always stays"
    );
    sound(dir.path(), &memory.heads());
}

#[test]
fn retention_drops_a_segment_with_a_torn_tail_too() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    for day in 0..4 {
        let (trail, memory) = open(dir.path(), SegmentLimits::default());
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
    let (path, day) = (
        directory(dir.path()),
        std::time::Duration::from_secs(86_400),
    );
    let dropped = drop_segments(&path, day, super::time(3 * 86_400)).unwrap();
    assert_eq!(dropped.segments.len(), 1);
    assert!(
        fs::read_to_string(&segments(dir.path())[0])
            .unwrap()
            .contains("\"kind\":\"recovered\"")
    );
    sound(dir.path(), &WitnessedHeads::default());
    let (trail, memory) = open(dir.path(), SegmentLimits::default());
    calls(&trail, 2);
    drop(trail);
    sound(dir.path(), &memory.heads());
}

#[test]
fn a_clock_that_was_set_back_lets_no_segment_go_early() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), SegmentLimits::default());
    let epoch = SystemTime::UNIX_EPOCH;
    for time in [super::time(0), epoch, super::time(0)] {
        let TrailRecord::Enter(enter) = enter(0, 1, "a") else {
            panic!("another kind")
        };
        trail
            .append([TrailRecord::Enter(Enter { time, ..enter })])
            .unwrap();
    }
    drop(trail);
    assert_eq!(segments(dir.path()).len(), 3);
    let week = std::time::Duration::from_secs(7 * 86_400);
    let dropped = drop_segments(&directory(dir.path()), week, super::time(86_400)).unwrap();
    assert!(dropped.segments.is_empty(), "{dropped:?}");
}

/// A daemon that was killed leaves records behind the last seal of a segment. When that segment
/// goes, so do they.
#[test]
fn retention_drops_a_segment_that_goes_on_behind_its_last_seal() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(
        dir.path(),
        SegmentLimits {
            segment_bytes: 64 << 20,
            ..small()
        },
    );
    calls(&trail, 7);
    let (killed, path) = (segments(dir.path()).pop().unwrap(), directory(dir.path()));
    let left = fs::read(&killed).unwrap();
    assert!(String::from_utf8_lossy(&left).contains("\"reason\":\"count\""));
    drop(trail);
    fs::write(&killed, left).unwrap();
    fs::remove_file(note_path(dir.path())).unwrap();
    for day in 1..3 {
        let (trail, _) = open(dir.path(), small());
        trail.append([enter(day * 86_400, 1, "a")]).unwrap();
    }
    let before = sound(dir.path(), &WitnessedHeads::default());
    let dropped = drop_segments(
        &path,
        std::time::Duration::from_secs(86_400),
        super::time(3 * 86_400),
    )
    .unwrap();
    assert_eq!(dropped.segments.len(), 1);
    let after = sound(dir.path(), &WitnessedHeads::default());
    assert_eq!((&after.head, after.records), (&before.head, before.records));

    // What is left of it is one line.
    let seal = path.join(format!("{}.seal", dropped.segments[0]));
    let kept = fs::read(&seal).unwrap();
    for bytes in [
        [&kept[..], b"x"].concat(),
        kept.repeat(2),
        kept[..kept.len() - 1].to_vec(),
    ] {
        fs::write(&seal, bytes).unwrap();
        assert_eq!(
            kinds(&check(dir.path(), &WitnessedHeads::default()))[0],
            TrailFaultKind::BadSeal
        );
    }
}
