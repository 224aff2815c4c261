//! Trails that cannot be written, or not read.

use std::fs;
use std::path::Path;

use super::*;

/// Waits so long that the next append looks what became of its segment.
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(2));
}

#[test]
fn a_segment_touched_by_somebody_else_is_left() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), SegmentLimits::default());
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
    assert!(
        error
            .to_string()
            .contains("was written to by somebody else"),
        "{error}"
    );
    assert!(trail.status().failing.is_some());
    calls(&trail, 2);
    assert!(trail.status().failing.is_none());
    drop(trail);
    let report = check(dir.path(), &memory.heads());
    assert_eq!(kinds(&report), [TrailFaultKind::DamagedTail], "{report:#?}");
}

#[test]
fn a_removed_directory_refuses_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, memory) = open(dir.path(), SegmentLimits::default());
    calls(&trail, 3);
    let records = trail.status().records;
    fs::remove_dir_all(directory(dir.path())).unwrap();
    pause();
    // The file is open and takes the write; nothing would ever be seen of it again.
    let error = trail.append([enter(0, 1, "a")]).unwrap_err();
    assert!(error.to_string().contains("was removed"), "{error}");
    for _ in 0..3 {
        let error = trail.append([enter(0, 1, "a")]).unwrap_err();
        assert!(
            error.to_string().contains("make the directory again"),
            "{error}"
        );
    }
    fs::create_dir(directory(dir.path())).unwrap();
    assert_eq!(
        trail.append([enter(0, 1, "a")]).unwrap().first,
        records + 1,
        "a recovered record comes first"
    );
    drop(trail);
    let text = fs::read_to_string(&segments(dir.path())[0]).unwrap();
    assert!(
        text.lines()
            .next()
            .unwrap()
            .contains("\"kind\":\"recovered\"")
    );
    let report = check(dir.path(), &memory.heads());
    assert!(
        kinds(&report).contains(&TrailFaultKind::MissingSegment),
        "{report:#?}"
    );
}

/// Puts a FIFO at `path`.
fn fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo")
        .arg(path)
        .status()
        .unwrap();
    assert!(made.success());
}

/// The value of `work`; panics if it is held up.
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
        assert!(
            error.to_string().contains("is not a regular file"),
            "{name}: {error}"
        );
        if name.ends_with(".jsonl") {
            let dir = path.clone();
            assert!(matches!(
                in_time(move || prove(&dir, 1, None)),
                Err(ProofError::Io(_))
            ));
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
        Trail::open(options(dir.path(), small()).0)
            .unwrap_err()
            .to_string(),
        verify(&path, Extent::Whole, None, &WitnessedHeads::default())
            .unwrap_err()
            .to_string(),
        prove(&path, 0, None).unwrap_err().to_string(),
        sealed_segments(&path).unwrap_err().to_string(),
    ];
    for refusal in refusals {
        assert!(
            refusal.contains("segment 0000000001-20261121 is of format 1")
                && refusal.contains("aside"),
            "{refusal}"
        );
    }
}
