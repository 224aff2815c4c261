//! Tiles that strangers read, and witnesses that cosign.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;
use crate::merkle::{Frontier, Hash, leaf_hash};

fn key(state_dir: &Path) -> Verifier {
    fs::read_to_string(verifier_path(state_dir))
        .unwrap()
        .parse()
        .unwrap()
}

/// The files of a directory, by path below it.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![dir.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

fn put(dir: &Path, files: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Appends calls, and closes the trail, which seals it.
fn grow(state_dir: &Path, count: usize) {
    let (trail, _) = open(
        state_dir,
        SegmentLimits {
            segment_bytes: 60_000,
            seal_records: 100,
            ..SegmentLimits::default()
        },
    );
    calls(&trail, count as u64);
    trail.close().unwrap();
}

/// The root that the hashes at level 0 lead to, each entry compared with its hash.
fn read_back(dir: &Path, size: u64) -> Hash {
    let found = files(dir);
    let mut tree = Frontier::default();
    for index in 0..=size / 256 {
        let width = if index == size / 256 { size % 256 } else { 256 };
        let suffix = if width < 256 {
            format!(".p/{width}")
        } else {
            String::new()
        };
        if width == 0 {
            continue;
        }
        let hashes = &found[&format!("tile/0/{index:03}{suffix}")];
        assert_eq!(hashes.len() as u64, 32 * width);
        let mut bundle = found
            .get(&format!("tile/entries/{index:03}{suffix}"))
            .map(Vec::as_slice);
        for hash in hashes.as_chunks::<32>().0 {
            if let Some(bytes) = &mut bundle {
                let length = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
                let entry = &bytes[2..2 + length];
                assert!(leaf_hash(entry) == *hash || entry == hash);
                *bytes = &bytes[2 + length..];
            }
            tree.push(*hash);
        }
        assert!(bundle.is_none_or(<[u8]>::is_empty));
    }
    tree.root()
}

#[test]
fn tiles_are_those_of_the_last_seal_however_often_they_are_continued() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let trail = directory(&state);
    let (grown, begun) = (place.path().join("grown"), place.path().join("entries"));
    fs::create_dir(&state).unwrap();
    for (round, count) in [3, 120, 1, 200, 130, 600].into_iter().enumerate() {
        grow(&state, count);
        let log = key(&state);
        for (dir, entries) in [(&grown, false), (&begun, true)] {
            let kept = files(&state);
            let before = if dir.exists() {
                files(dir)
            } else {
                BTreeMap::new()
            };
            let report = write_tiles(&trail, dir, &log, entries).unwrap();
            assert_eq!(files(&state), kept, "the trail is only read");
            let found = files(dir);
            let (size, root) = log
                .open(std::str::from_utf8(&found["checkpoint"]).unwrap())
                .unwrap();
            assert_eq!(
                (report.records, read_back(dir, size)),
                (size, root),
                "round {round}"
            );
            assert_eq!(
                found.contains_key("tile/entries/000") || size < 256,
                entries || size < 256
            );
            // As a new one, but for partial tiles of earlier checkpoints.
            let fresh = place.path().join(format!("fresh-{round}-{entries}"));
            write_tiles(&trail, &fresh, &log, entries).unwrap();
            let new = files(&fresh);
            assert!(
                new.iter()
                    .all(|(name, bytes)| found.get(name) == Some(bytes)),
                "round {round}"
            );
            assert!(
                found
                    .keys()
                    .all(|name| new.contains_key(name) || name.contains(".p/"))
            );
            // Killed before the checkpoint was replaced, or before there was one.
            let killed = place.path().join(format!("killed-{round}-{entries}"));
            put(&killed, &found);
            fs::remove_file(killed.join("checkpoint")).unwrap();
            put(&killed, &before);
            assert_eq!(
                write_tiles(&trail, &killed, &log, entries).unwrap().records,
                size
            );
            assert!(
                files(&killed)
                    .iter()
                    .all(|(name, bytes)| found.get(name) == Some(bytes) || name.contains(".p/"))
            );
            // Nothing is left to do.
            let again = write_tiles(&trail, dir, &log, entries).unwrap();
            assert_eq!((again.before, again.records), (size, size));
        }
    }
}

#[test]
fn a_directory_that_is_not_of_this_trail_or_not_whole_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let state = path("state");
    fs::create_dir(&state).unwrap();
    grow(&state, 150);
    let young = files(&state);
    let (log, trail, dir) = (key(&state), directory(&state), path("tiles"));
    write_tiles(&trail, &dir, &log, false).unwrap();
    let kept = files(&dir);
    let refused = |trail: &Path, log: &Verifier, entries: bool| {
        let before = files(&dir);
        let error = write_tiles(trail, &dir, log, entries).unwrap_err();
        assert_eq!(files(&dir), before);
        error
    };
    assert!(matches!(
        refused(&trail, &log, true),
        TilesError::OtherContent { there: false, .. }
    ));
    // Another log; another history under the same key; the same trail, earlier.
    for (name, same_key) in [("other", false), ("rewritten", true)] {
        let other = path(name);
        fs::create_dir(&other).unwrap();
        if same_key {
            fs::copy(key_path(&state), key_path(&other)).unwrap();
        }
        grow(&other, 155);
        let error = refused(&directory(&other), &key(&other), false);
        assert!(
            matches!(
                (&error, same_key),
                (TilesError::OtherLog { .. }, false) | (TilesError::OtherHistory { .. }, true)
            ),
            "{error}"
        );
    }
    grow(&state, 150);
    write_tiles(&trail, &dir, &log, false).unwrap();
    let grown = files(&dir);
    let earlier = path("earlier");
    put(&earlier, &young);
    let error = refused(&directory(&earlier), &log, false);
    assert!(
        matches!(
            error,
            TilesError::Older {
                there: 600..,
                here: 1..,
                ..
            }
        ),
        "{error}"
    );
    // Half written: whatever file of the right edge is not there, or is another.
    grow(&state, 10);
    let (size, _) = log
        .open(std::str::from_utf8(&grown["checkpoint"]).unwrap())
        .unwrap();
    let edge = format!("tile/0/{:03}.p/{}", size / 256, size % 256);
    for content in [
        None,
        Some(Vec::new()),
        Some(vec![0; grown[&edge].len()]),
        Some(kept["checkpoint"].clone()),
    ] {
        match content {
            None => fs::remove_file(dir.join(&edge)).unwrap(),
            Some(bytes) => fs::write(dir.join(&edge), bytes).unwrap(),
        }
        let error = refused(&trail, &log, false);
        assert!(matches!(error, TilesError::Damaged(_)), "{error}");
        put(&dir, &grown);
    }
    for content in [&b""[..], b"x", b"\xff", &grown["checkpoint"][..40]] {
        fs::write(dir.join("checkpoint"), content).unwrap();
        assert!(matches!(
            refused(&trail, &log, false),
            TilesError::OtherLog { .. }
        ));
    }
    put(&dir, &grown);
    let lock = fs::File::open(&dir).unwrap();
    lock.lock().unwrap();
    assert!(matches!(refused(&trail, &log, false), TilesError::Busy(_)));
    drop(lock);
    write_tiles(&trail, &dir, &log, false).unwrap();
    // A FIFO in the place of the checkpoint holds nobody.
    fs::remove_file(dir.join("checkpoint")).unwrap();
    nix::unistd::mkfifo(&dir.join("checkpoint"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(
        write_tiles(&trail, &dir, &log, false),
        Err(TilesError::File { .. })
    ));
}

#[test]
fn a_damaged_trail_is_published_up_to_the_damage() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    fs::create_dir(&state).unwrap();
    grow(&state, 150);
    let log = key(&state);
    let path = segments(&state).remove(1);
    let text = fs::read_to_string(&path).unwrap();
    let at = text.lines().count() / 2;
    let lines = text.lines().enumerate().map(|(i, line)| match i == at {
        true => {
            line.replacen("\"uid\":1", "\"uid\":2", 1)
                .replacen("SUCCESS", "FAILURE", 1)
                + "\n"
        }
        false => format!("{line}\n"),
    });
    fs::write(&path, lines.collect::<String>()).unwrap();
    let dir = place.path().join("tiles");
    let error = write_tiles(&directory(&state), &dir, &log, false).unwrap_err();
    assert!(
        matches!(error, TilesError::Trail(ProofError::Damaged { .. })),
        "{error}"
    );
    let checkpoint = fs::read_to_string(dir.join("checkpoint")).unwrap();
    let (size, root) = log.open(&checkpoint).unwrap();
    assert_eq!((size > 0, read_back(&dir, size)), (true, root));
}

#[test]
fn a_witness_signs_what_continues_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let (state, witness) = (path("state"), path("witness"));
    fs::create_dir(&state).unwrap();
    grow(&state, 40);
    let (log, trail) = (key(&state), directory(&state));
    let now = time(0);
    let sign = |request: &str| cosign(&witness, &log, request, now);
    let first = prove_growth(&trail, 0).unwrap();
    assert!(matches!(
        sign(&first.to_string().replacen("old 0", "old 3", 1)),
        Err(CosignError::OldSize { signed: 0 })
    ));
    let cosigned = sign(&first.to_string()).unwrap();
    let public: WitnessKey = fs::read_to_string(witness.join("witness.pub"))
        .unwrap()
        .parse()
        .unwrap();
    let open =
        |note: &str| CosignedCheckpoint::open(note, &log, std::slice::from_ref(&public)).unwrap();
    let (size, _) = log.open(&cosigned).unwrap();
    assert_eq!(
        open(&cosigned).by,
        [(public.name().to_owned(), 1_795_300_200)]
    );
    // Once more the same, from where the witness is.
    assert!(
        matches!(sign(&first.to_string()), Err(CosignError::OldSize { signed }) if signed == size)
    );
    sign(&prove_growth(&trail, size).unwrap().to_string()).unwrap();
    let young = files(&state);
    grow(&state, 40);
    let next = prove_growth(&trail, size).unwrap().to_string();
    let second = sign(&next).unwrap();
    let (later, _) = log.open(&second).unwrap();
    assert!(later > size && open(&second).by.len() == 1);
    // Older, of another history, of another log, changed.
    let earlier = path("earlier");
    put(&earlier, &young);
    let older = prove_growth(&directory(&earlier), size)
        .unwrap()
        .to_string();
    assert!(matches!(sign(&older), Err(CosignError::Older { signed, .. }) if signed == later));
    let other = path("other");
    fs::create_dir(&other).unwrap();
    grow(&other, 200);
    let foreign = prove_growth(&directory(&other), later).unwrap().to_string();
    assert!(matches!(
        sign(&foreign),
        Err(CosignError::Note(NoteError::Signature(_)))
    ));
    fs::remove_dir_all(&other).unwrap();
    fs::create_dir(&other).unwrap();
    fs::copy(key_path(&state), key_path(&other)).unwrap();
    grow(&other, 205);
    let rewritten = prove_growth(&directory(&other), later).unwrap().to_string();
    assert!(
        matches!(sign(&rewritten), Err(CosignError::Inconsistent { signed, .. }) if signed == later)
    );
    grow(&state, 40);
    let third = prove_growth(&trail, later).unwrap().to_string();
    for (at, _) in third.char_indices().filter(|(_, c)| c.is_ascii()) {
        let mut bytes = third.clone().into_bytes();
        bytes[at] ^= 1;
        if let Ok(changed) = String::from_utf8(bytes)
            && at + 1 < third.len()
        {
            assert!(sign(&changed).is_err(), "{at}: {changed}");
        }
    }
    assert!(
        third
            .parse::<GrowthProof>()
            .is_ok_and(|proof| proof.old == later)
    );
    // What it signed binds verification: the trail as it was, cut, and written anew.
    let verified = |state: &Path, note: &str| {
        let heads = WitnessedHeads {
            cosigned: vec![open(note)],
            ..WitnessedHeads::default()
        };
        verify(&directory(state), Extent::Whole, Some(&log), &heads).unwrap()
    };
    let report = verified(&state, &second);
    assert!(
        report.is_sound() && report.promised_records == later,
        "{report:#?}"
    );
    assert_eq!(report.cosigned_by[0].witness, public.name());
    assert_eq!(report.vouched_by[0].by, Voucher::Witness);
    for (state, kind) in [
        (&earlier, TrailFaultKind::Truncated),
        (&other, TrailFaultKind::Rewritten),
    ] {
        let report = verified(state, &second);
        assert_eq!(
            report
                .faults
                .iter()
                .map(|fault| fault.kind)
                .collect::<Vec<_>>(),
            [kind]
        );
        assert!(report.cosigned_by.is_empty() && report.promised_records == 0);
    }
}

/// Root on one of three hosts has its key and writes its trail anew below a head that the others
/// signed, each time in another record: whoever has what they signed names it, and neither signs
/// what follows.
#[test]
fn each_of_500_rewrites_below_what_others_signed_is_named() {
    const CALLS: u64 = 40;
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let write = |state: &Path, calls: u64, forged: Option<u64>| {
        let (trail, _) = open(state, SegmentLimits::default());
        for i in 0..calls {
            let tool = if Some(i) == forged { "forged" } else { "tool" };
            let first = trail.append([enter(i, 1001, tool)]).unwrap().first;
            trail.append([exit(i, first, tool, true, i)]).unwrap();
        }
        trail.close().unwrap();
    };
    let honest = path("honest");
    fs::create_dir(&honest).unwrap();
    write(&honest, CALLS, None);
    let log = key(&honest);
    let request = prove_growth(&directory(&honest), 0).unwrap().to_string();
    let witnesses = [path("b"), path("c")];
    let notes = witnesses
        .each_ref()
        .map(|dir| cosign(dir, &log, &request, time(0)).unwrap());
    let keys = witnesses.each_ref().map(|dir| {
        let text = fs::read_to_string(dir.join("witness.pub")).unwrap();
        text.parse::<WitnessKey>().unwrap()
    });
    let (signed, _) = log.open(&notes[0]).unwrap();
    let heads = WitnessedHeads {
        cosigned: notes
            .iter()
            .map(|note| CosignedCheckpoint::open(note, &log, &keys).unwrap())
            .collect(),
        ..WitnessedHeads::default()
    };
    let verified =
        |state: &Path| verify(&directory(state), Extent::Whole, Some(&log), &heads).unwrap();
    let report = verified(&honest);
    assert!(
        report.is_sound() && report.promised_records == signed,
        "{report:#?}"
    );
    assert_eq!(report.cosigned_by.len(), 2);
    let rewritten = path("rewritten");
    for round in 0..500 {
        let _ = fs::remove_dir_all(&rewritten);
        fs::create_dir(&rewritten).unwrap();
        fs::copy(key_path(&honest), key_path(&rewritten)).unwrap();
        // Sometimes longer than what was signed, sometimes as long.
        write(&rewritten, CALLS + round % 3, Some(round % CALLS));
        let report = verified(&rewritten);
        assert!(
            kinds(&report).contains(&TrailFaultKind::Rewritten),
            "{round}: {report:#?}"
        );
        assert!(
            report.cosigned_by.is_empty() && report.promised_records == 0,
            "{round}"
        );
        let next = prove_growth(&directory(&rewritten), signed)
            .unwrap()
            .to_string();
        for witness in &witnesses {
            let refused = cosign(witness, &log, &next, time(1));
            assert!(
                matches!(refused, Err(CosignError::Inconsistent { .. })),
                "{round}: {refused:?}"
            );
        }
    }
}
