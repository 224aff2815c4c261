//! The name of each fault, and the meaning of proofs.

use std::fs;
use std::path::Path;

use super::*;

/// Replaces text in one segment.
fn edit(path: &Path, change: impl FnOnce(Vec<String>) -> Vec<String>) {
    let lines = fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
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
    let expect = |place: &Path, line: Option<u64>, kind: TrailFaultKind| {
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
    expect(second, Some(3), TrailFaultKind::EditedRecord);
    assert_eq!(
        check(dir.path(), &heads).fault_count,
        1,
        "one fault is named once"
    );
    restore();
    edit(second, |mut lines| {
        lines.remove(2);
        lines
    });
    expect(second, Some(3), TrailFaultKind::MissingRecord);
    assert_eq!(check(dir.path(), &heads).fault_count, 1);
    restore();
    edit(second, |mut lines| {
        lines.insert(4, lines[2].clone());
        lines
    });
    expect(second, Some(5), TrailFaultKind::InsertedRecord);
    restore();
    edit(second, |mut lines| {
        lines.swap(2, 3);
        lines
    });
    expect(second, Some(4), TrailFaultKind::ReorderedRecord);
    restore();
    edit(second, |mut lines| {
        lines[1] = "{}".into();
        lines
    });
    expect(second, Some(2), TrailFaultKind::MalformedLine);
    restore();
    fs::write(second, &whole[..whole.len() - 1]).unwrap();
    expect(
        second,
        Some(String::from_utf8_lossy(&whole).lines().count() as u64),
        TrailFaultKind::TornTail,
    );
    restore();
    fs::remove_file(second).unwrap();
    expect(&paths[2], None, TrailFaultKind::MissingSegment);
    restore();
    fs::rename(first, first.with_file_name("0000000002-20261120.jsonl")).unwrap();
    let report = check(dir.path(), &heads);
    assert!(
        kinds(&report).contains(&TrailFaultKind::InsertedSegment),
        "{report:#?}"
    );
    fs::rename(first.with_file_name("0000000002-20261120.jsonl"), first).unwrap();
    for path in &paths[3..] {
        fs::remove_file(path).unwrap();
    }
    expect(
        &paths[2],
        Some(fs::read_to_string(&paths[2]).unwrap().lines().count() as u64),
        TrailFaultKind::Truncated,
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
    assert!(
        kinds(&report)
            .iter()
            .all(|kind| *kind == TrailFaultKind::BadCheckpoint)
            && !report.is_sound()
    );
}

#[test]
fn nothing_hides_before_a_record_however_long_it_is() {
    use std::io::{Seek as _, SeekFrom, Write as _};

    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), SegmentLimits::default());
    calls(&trail, 2);
    drop(trail);
    let path = segments(dir.path()).pop().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let at = text.trim_end().rfind('\n').unwrap() + 1;
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(at as u64).unwrap();
    file.seek(SeekFrom::Start(at as u64 + crate::read::MAX_LINE))
        .unwrap();
    file.write_all(&text.as_bytes()[at..]).unwrap();
    let report = check(dir.path(), &WitnessedHeads::default());
    assert_eq!(
        kinds(&report),
        [TrailFaultKind::MalformedLine],
        "{report:#?}"
    );
    assert_eq!(report.faults[0].line, Some(text.lines().count() as u64));
    // Nor where the write of a line was interrupted, which is no fault.
    file.set_len(at as u64 + crate::read::MAX_LINE).unwrap();
    assert_eq!(kinds(&check(dir.path(), &WitnessedHeads::default())), []);
}

#[test]
fn proofs_hold_elsewhere_and_only_for_what_they_prove() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), small());
    calls(&trail, 40);
    drop(trail);
    let report = check(dir.path(), &WitnessedHeads::default());
    let trail = directory(dir.path());
    let verifier = fs::read_to_string(verifier_path(dir.path()))
        .unwrap()
        .parse()
        .unwrap();
    for n in 0..report.records - 1 {
        let proof = prove(&trail, n, None).unwrap();
        assert!(proof.record().starts_with(&format!("{{\"n\":{n},")));
        let (text, root) = (
            proof.to_string(),
            colibri_text::hex(&proof.tree().unwrap().1),
        );
        assert_eq!(check_proof(&text, Some(&root), None).unwrap(), proof);
        check_proof(&text, None, Some(&verifier)).unwrap();
        assert!(matches!(
            check_proof(&text, None, None),
            Err(ProofError::NoAnchor)
        ));
        let other = "0".repeat(64);
        assert!(matches!(
            check_proof(&text, Some(&other), None),
            Err(ProofError::Root(_))
        ));
        // No byte can be another, but for names of signers that nobody asks for.
        for (at, _) in text.char_indices().filter(|(_, c)| c.is_ascii()) {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(changed) = String::from_utf8(bytes) else {
                continue;
            };
            if at + 1 < text.len() {
                assert!(
                    check_proof(&changed, Some(&root), Some(&verifier)).is_err(),
                    "{at}: {changed}"
                );
            }
        }
        // Up to a later checkpoint, if it is one of the trail.
        let last = prove_growth(&trail, 0).unwrap().checkpoint;
        let (size, last_root) = verifier.open(&last).unwrap();
        if n < size {
            let later = prove(&trail, n, Some(&last)).unwrap();
            assert_eq!(
                (later.checkpoint.as_str(), later.tree().unwrap()),
                (last.as_str(), (size, last_root))
            );
            let foreign = last.replacen(&format!("\n{size}\n"), &format!("\n{}\n", size - 1), 1);
            assert!(prove(&trail, n, Some(&foreign)).is_err());
        }
        let growth = prove_growth(&trail, n).unwrap();
        assert_eq!(growth.to_string().parse::<GrowthProof>().unwrap(), growth);
    }
    assert!(
        matches!(
            prove(&trail, report.records - 1, None),
            Err(ProofError::NotSealed(_))
        ),
        "the last seal itself"
    );
    assert!(matches!(
        prove(&trail, report.records, None),
        Err(ProofError::NoRecord(_))
    ));
}

/// The note of `verify` where the log is not read.
fn noted(state_dir: &Path) -> Report {
    let mut heads = WitnessedHeads::default();
    let verifier = fs::read_to_string(verifier_path(state_dir))
        .unwrap()
        .parse()
        .unwrap();
    heads
        .read_note(&note_path(state_dir), Some(&verifier))
        .unwrap();
    verify(
        &directory(state_dir),
        Extent::Whole,
        Some(&verifier),
        &heads,
    )
    .unwrap()
}

#[test]
fn removed_segments_are_missed_without_a_witness_too() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = dir.path();
    let (trail, _) = open(state_dir, small());
    let report = noted(state_dir);
    let vouched = |records| {
        vec![TrailWitness {
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
    assert_eq!(
        whole.promised_records, 0,
        "the daemon's user can change the note"
    );

    // The last segment, then all of them.
    let paths = segments(state_dir);
    let kept: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    for gone in [&paths[paths.len() - 1..], &paths[..]] {
        for path in gone {
            let _ = fs::remove_file(path);
        }
        let report = noted(state_dir);
        assert_eq!(kinds(&report), [TrailFaultKind::Truncated], "{report:#?}");
        assert!(report.vouched_by.is_empty());
        assert!(
            check(state_dir, &WitnessedHeads::default()).is_sound(),
            "nobody else knows"
        );
        // A daemon that went on would note the shorter trail.
        let error = Trail::open(options(state_dir, small()).0).unwrap_err();
        assert!(matches!(error, TrailError::Cut { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains("records were removed or changed"),
            "{error}"
        );
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
        let (trail, _) = open(state_dir, SegmentLimits::default());
        trail.append([enter(0, user, "a")]).unwrap();
        drop(trail);
        fs::read(note_path(state_dir)).unwrap()
    };
    let first = again(1);
    again(2);
    fs::write(note_path(state_dir), first).unwrap();
    assert_eq!(kinds(&noted(state_dir)), [TrailFaultKind::Rewritten]);
    let error = Trail::open(options(state_dir, small()).0).unwrap_err();
    assert!(error.to_string().contains("has another record"), "{error}");

    // A note that is not this installation's, an empty one and none vouch for nothing.
    for text in [
        &b"trail-head records=1 hash=0 root=0 origin=x sig=x\n"[..],
        b"\xff",
        b"",
    ] {
        fs::write(note_path(state_dir), text).unwrap();
        let report = noted(state_dir);
        assert!(
            report.is_sound() && report.vouched_by.is_empty(),
            "{report:#?}"
        );
    }
    fs::remove_file(note_path(state_dir)).unwrap();
    let report = noted(state_dir);
    assert!(
        report.is_sound() && report.vouched_by.is_empty(),
        "{report:#?}"
    );
}

#[test]
fn a_note_with_the_root_of_another_trail_vouches_for_nothing() {
    use crate::signed_note::Signer;
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), small());
    calls(&trail, 3);
    drop(trail);
    let note = TrailHead::noted(&note_path(dir.path())).unwrap().unwrap();
    let signer = Signer::load_or_create(&key_path(dir.path()), "trail").unwrap();
    let other = TrailHead::sign(&signer, note.records, note.hash, [1; 32]);
    fs::write(note_path(dir.path()), format!("{other}\n")).unwrap();
    let report = noted(dir.path());
    assert_eq!(kinds(&report), [TrailFaultKind::Rewritten]);
    assert!(report.vouched_by.is_empty());
}

#[test]
fn the_highest_number_stops_no_verifier() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), small());
    calls(&trail, 20);
    drop(trail);
    let first = segments(dir.path()).remove(0);
    let most = |line: &str| {
        let from = line.find("\"n\":").unwrap() + 4;
        let to = from + line[from..].find(',').unwrap();
        format!("{}{}{}", &line[..from], u64::MAX, &line[to..])
    };
    // A record with it, a line that is none behind it, and a seal with it that is left of a
    // segment.
    edit(&first, |mut lines| {
        lines[1] = most(&lines[1]);
        lines[2] = "none".into();
        lines
    });
    assert!(!check(dir.path(), &WitnessedHeads::default()).is_sound());
    let mut seal = fs::read_to_string(&first).unwrap();
    seal = seal.lines().next().unwrap().to_owned() + "\n";
    seal = most(&seal).replace("\"tree_size\":0", &format!("\"tree_size\":{}", u64::MAX));
    seal = seal.replace(
        "\"peaks\":[]",
        &format!(
            "\"peaks\":[{}]",
            vec![format!("\"{}\"", "0".repeat(64)); 64].join(",")
        ),
    );
    let root = crate::merkle::Frontier::resume(u64::MAX, &[[0; 32]; 64])
        .unwrap()
        .root();
    let empty = crate::merkle::Frontier::default().root();
    seal = seal.replace(&colibri_text::hex(&empty), &colibri_text::hex(&root));
    let rec = seal
        .trim_end()
        .strip_suffix('}')
        .unwrap()
        .split_once("\"rec\":")
        .unwrap()
        .1
        .to_owned();
    let mut line = Vec::new();
    crate::line::push_line(&mut line, &mut crate::line::GENESIS.clone(), |out| {
        out.extend_from_slice(rec.as_bytes())
    });
    fs::write(first.with_extension("seal"), line).unwrap();
    fs::remove_file(&first).unwrap();
    assert!(!check(dir.path(), &WitnessedHeads::default()).is_sound());
}

#[test]
fn a_segment_cut_before_its_counted_end_is_named_once() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(dir.path(), SegmentLimits::default());
    calls(&trail, 2);
    let path = segments(dir.path()).remove(0);
    let left = fs::read(&path).unwrap();
    drop(trail);
    fs::write(&path, &left).unwrap();
    fs::remove_file(note_path(dir.path())).unwrap();
    let (trail, _) = open(dir.path(), SegmentLimits::default());
    calls(&trail, 2);
    drop(trail);
    sound(dir.path(), &WitnessedHeads::default());
    fs::write(&path, &left[..left.len() - 5]).unwrap();
    let found = kinds(&check(dir.path(), &WitnessedHeads::default()));
    assert_eq!(
        found,
        [TrailFaultKind::Truncated, TrailFaultKind::MissingRecord]
    );
}
