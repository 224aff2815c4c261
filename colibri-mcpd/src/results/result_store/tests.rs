//! Results in files: read back as they were, and by nobody else.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::super::pieces::PieceSelector;
use super::super::stored_result::KEPT_FOR;
use super::super::text;
use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRng, TestRunner};

const LIMITS: ResultLimits = ResultLimits {
    per_user: 64 << 20,
    total: 512 << 20,
};

fn agent(uid: u32, session: &str) -> ResultOwner {
    ResultOwner {
        uid,
        session: Some(session.into()),
    }
}

fn json(offset: u64, most: u64) -> PieceRequest {
    PieceRequest {
        offset,
        most,
        room: u64::MAX,
        what: PieceSelector::Json,
    }
}

fn all(results: &Results, owner: &ResultOwner, handle: &str) -> String {
    results
        .read(owner, handle, &json(0, u64::MAX))
        .unwrap()
        .text
}

/// A text of about so many bytes, in characters of one to four.
fn text(random: &mut TestRng, length: usize) -> String {
    let mut text = String::with_capacity(length + 4);
    while text.len() < length {
        let some = random.random::<u64>().to_ne_bytes();
        for byte in some {
            text.push(match byte {
                0..=0xbf => char::from(byte & 0x7f | 0x20),
                0xc0..=0xdf => 'é',
                0xe0..=0xf7 => '語',
                _ => '🐦',
            });
        }
    }
    let end = text::floor(&text, length);
    text.truncate(end);
    if text.is_empty() {
        "x".to_owned()
    } else {
        text
    }
}

/// Keeps random results of 1 byte to `most` and reads them to their end in random pieces.
fn campaign(count: usize, most: usize) {
    let state = tempfile::tempdir().unwrap();
    let results = Results::open(state.path(), LIMITS).unwrap();
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::deterministic_rng(Default::default()),
    );
    let random = runner.rng();
    for number in 0..count {
        // As many small ones as large ones.
        let bits = random.random_range(0.0..=(most as f64).log2());
        let length = if number == 0 {
            most
        } else {
            (2f64.powf(bits) as usize).clamp(1, most)
        };
        let whole = text(random, length);
        let owner = ResultOwner::person(random.random_range(1..=3));
        let handle = results
            .keep(&owner, whole.as_bytes())
            .unwrap()
            .handle
            .to_string();
        let (mut read, mut next, mut pieces) = (String::with_capacity(length), Some(0), 0);
        while let Some(offset) = next {
            let share = length as u64 / random.random_range(1..=40) + 1;
            let piece = results
                .read(
                    &owner,
                    &handle,
                    &json(offset, random.random_range(1..=share)),
                )
                .unwrap();
            assert!(
                !piece.text.is_empty(),
                "{number}: nothing at {offset} of {length}"
            );
            assert_eq!(
                piece.next.unwrap_or(whole.len() as u64),
                offset + piece.text.len() as u64
            );
            read.push_str(&piece.text);
            (next, pieces) = (piece.next, pieces + 1);
        }
        assert!(read == whole, "{number}: {length} bytes in {pieces} pieces");
        let (bytes, _) = results.index.lock().counted();
        assert!(bytes <= LIMITS.total);
    }
}

#[test]
fn random_results_read_in_random_pieces_are_identical() {
    // The long form is .ci/long's.
    if std::env::var_os("COLIBRI_LONG").is_some() {
        campaign(1000, 16 << 20);
    } else {
        campaign(100, 1 << 20);
    }
}

#[test]
fn an_offset_within_a_character_is_the_characters_and_one_beyond_the_end_is_told() {
    let state = tempfile::tempdir().unwrap();
    let (results, owner) = (
        Results::open(state.path(), LIMITS).unwrap(),
        ResultOwner::person(1),
    );
    let handle = results
        .keep(&owner, "a🐦é".as_bytes())
        .unwrap()
        .handle
        .to_string();
    let read = |offset, most| results.read(&owner, &handle, &json(offset, most)).unwrap();
    for offset in 1..=4 {
        let piece = read(offset, 1);
        assert_eq!((&*piece.text, piece.next), ("🐦", Some(5)), "{offset}");
    }
    assert_eq!(
        (read(0, 4).text, read(0, 4).next),
        ("a".to_owned(), Some(1))
    );
    assert_eq!((read(5, 9).text, read(5, 9).next), ("é".to_owned(), None));
    assert_eq!((read(7, 9).text, read(7, 9).next), (String::new(), None));
    let beyond = results.read(&owner, &handle, &json(8, 9)).unwrap_err();
    assert_eq!(
        beyond.to_string(),
        "offset 8 is beyond the end: there are 7 bytes"
    );
    let far = results
        .read(&owner, &handle, &json(u64::MAX, u64::MAX))
        .unwrap_err();
    assert!(matches!(far, NotRead::Missing(_)));
}

#[test]
fn nobody_else_finds_anything_nor_learns_why() {
    let state = tempfile::tempdir().unwrap();
    let results = Results::open(state.path(), LIMITS).unwrap();
    let owners = [
        ResultOwner::person(1),
        ResultOwner::person(2),
        agent(1, "00000000000000aa"),
        agent(1, "00000000000000bb"),
    ];
    let handles: Vec<_> = owners
        .iter()
        .map(|owner| results.keep(owner, b"{}").unwrap().handle.to_string())
        .collect();
    let now = SystemTime::now();
    for (mine, owner) in owners.iter().enumerate() {
        for (whose, handle) in handles.iter().enumerate() {
            let read = results.read_at(owner, handle, &json(0, 9), now);
            assert_eq!(read.is_ok(), mine == whose, "{owner:?}");
        }
        let over = results
            .read_at(owner, &handles[mine], &json(0, 9), now + KEPT_FOR)
            .unwrap_err();
        let guessed = "0123456789abcdef0123456789abcdef";
        let upper = handles[mine].to_uppercase();
        for no_handle in [
            "",
            "x",
            guessed,
            &upper,
            "../colibri.db",
            &"0".repeat(32),
            &"a".repeat(10_000),
        ] {
            let error = results.read(owner, no_handle, &json(0, 9)).unwrap_err();
            assert!(
                matches!(error, NotRead::Unknown) && error.to_string() == over.to_string(),
                "{no_handle}"
            );
        }
    }
}

#[test]
fn files_are_ours_alone_and_a_restart_keeps_what_is_whole_of_people() {
    let state = tempfile::tempdir().unwrap();
    let open = || Results::open(state.path(), LIMITS).unwrap();
    let (results, person, agent) = (open(), ResultOwner::person(7), agent(7, "00000000000000aa"));
    let kept = results
        .keep(&person, "{\"é\":1}".as_bytes())
        .unwrap()
        .handle
        .to_string();
    let damaged = results
        .keep(&person, b"{\"a\":1}")
        .unwrap()
        .handle
        .to_string();
    let short = results
        .keep(&person, b"{\"b\":1}")
        .unwrap()
        .handle
        .to_string();
    let of_agent = results
        .keep(&agent, b"{\"c\":1}")
        .unwrap()
        .handle
        .to_string();
    let directory = state.path().join("results");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(
        (mode(&directory), mode(&directory.join(&kept))),
        (0o700, 0o600)
    );
    let change = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(directory.join(name)).unwrap();
        change(&mut bytes);
        fs::write(directory.join(name), bytes).unwrap();
    };
    change(&damaged, &|bytes| *bytes.last_mut().unwrap() = b' ');
    change(&short, &|bytes| bytes.truncate(bytes.len() - 1));
    let left: [(&str, &[u8]); 4] = [
        (".0123456789abcdef0123456789abcdef.new", b"half"),
        (
            "0123456789abcdef0123456789abcdef",
            b"colibri-result 1 7 - 0 99999999999999999999 00\n",
        ),
        (
            "1123456789abcdef0123456789abcdef",
            b"colibri-result 1 7 - 18446744073709551615 0 00\n",
        ),
        ("notes.txt", b"?"),
    ];
    for (name, content) in left {
        fs::write(directory.join(name), content).unwrap();
    }
    fs::create_dir(directory.join("2123456789abcdef0123456789abcdef")).unwrap();
    symlink(
        "/etc/passwd",
        directory.join("3123456789abcdef0123456789abcdef"),
    )
    .unwrap();
    drop(results);
    let results = open();
    let mut names: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|one| one.unwrap().file_name())
        .collect();
    names.sort();
    let mut wanted = [&*kept, &*damaged].map(std::ffi::OsString::from);
    wanted.sort();
    assert_eq!(names, wanted);
    assert_eq!(all(&results, &person, &kept), "{\"é\":1}");
    let error = results.read(&person, &damaged, &json(0, 9)).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert!(matches!(
        results.read(&agent, &of_agent, &json(0, 9)),
        Err(NotRead::Unknown)
    ));
    results.tidy(SystemTime::now() + KEPT_FOR);
    assert_eq!(
        fs::read_dir(&directory).unwrap().count(),
        0,
        "a day after they were kept"
    );
}

#[test]
fn smaller_limits_after_a_restart_leave_the_newest() {
    let state = tempfile::tempdir().unwrap();
    let results = Results::open(state.path(), LIMITS).unwrap();
    let owner = ResultOwner::person(1);
    let mut handles = Vec::new();
    for after in 0..5 {
        let now = SystemTime::now() + Duration::from_secs(after);
        handles.push(
            results
                .keep_at(&owner, b"{}", now)
                .unwrap()
                .handle
                .to_string(),
        );
    }
    drop(results);
    let limits = ResultLimits {
        per_user: 2 * 4096,
        total: 9 * 4096,
    };
    let results = Results::open(state.path(), limits).unwrap();
    let there: Vec<_> = handles
        .iter()
        .map(|handle| results.read(&owner, handle, &json(0, 9)).is_ok())
        .collect();
    assert_eq!(there, [false, false, false, true, true]);
    assert_eq!(
        fs::read_dir(state.path().join("results")).unwrap().count(),
        2
    );
}

#[test]
fn a_directory_that_is_not_ours_alone_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let directory = state.path().join("results");
    symlink(state.path(), &directory).unwrap();
    assert!(
        Results::open(state.path(), LIMITS)
            .unwrap_err()
            .to_string()
            .contains("results")
    );
    fs::remove_file(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o750)).unwrap();
    assert!(
        Results::open(state.path(), LIMITS)
            .unwrap_err()
            .to_string()
            .contains("0700")
    );
}

#[test]
fn the_limits_hold_while_many_keep_at_once() {
    let state = tempfile::tempdir().unwrap();
    let limits = ResultLimits {
        per_user: 1 << 20,
        total: 2 << 20,
    };
    let results = Results::open(state.path(), limits).unwrap();
    let directory = state.path().join("results");
    let on_disk = || -> u64 {
        let files = fs::read_dir(&directory).unwrap().flatten();
        // One may have gone since it was listed.
        files
            .filter_map(|file| Some(file.metadata().ok()?.len()))
            .sum()
    };
    std::thread::scope(|scope| {
        let (results, on_disk) = (&results, &on_disk);
        let writers: Vec<_> = (0..6)
            .map(|uid| {
                scope.spawn(move || {
                    for number in 0..60 {
                        let length = 1 + number * 7919 % (300 << 10);
                        let kept = results.keep(&ResultOwner::person(uid), &vec![b'x'; length]);
                        assert!(matches!(kept, Ok(_) | Err(NotStored::Busy)), "{kept:?}");
                    }
                })
            })
            .collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            let heads = 6 * 60 * 256;
            // What each of the six gives up is counted no more, and may be there for a moment
            // still.
            let given_up = 6 * (300 << 10);
            assert!(
                on_disk() <= limits.total + given_up + heads
                    && results.index.lock().counted().0 <= limits.total
            );
        }
    });
    let (bytes, count) = results.index.lock().counted();
    assert!(bytes <= limits.total && count > 0);
    assert_eq!(
        fs::read_dir(&directory).unwrap().count(),
        count,
        "there is a file for each and no other"
    );
}

#[test]
fn where_nothing_can_be_written_nothing_is_left() {
    let state = tempfile::tempdir().unwrap();
    let results = Results::open(state.path(), LIMITS).unwrap();
    let owner = ResultOwner::person(1);
    let too_long = Results::open(
        tempfile::tempdir().unwrap().path(),
        ResultLimits {
            per_user: 0,
            total: 9,
        },
    );
    assert!(matches!(
        too_long.unwrap().keep(&owner, b"{}"),
        Err(NotStored::TooLong(2, 0))
    ));
    fs::remove_dir(state.path().join("results")).unwrap();
    fs::write(state.path().join("results"), "no directory").unwrap();
    assert!(matches!(
        results.keep(&owner, b"{}"),
        Err(NotStored::Disk(_))
    ));
    assert_eq!(results.index.lock().counted(), (0, 0));
}

#[test]
fn a_pointer_and_a_pattern_read_16_mib() {
    let state = tempfile::tempdir().unwrap();
    let (results, owner) = (
        Results::open(state.path(), LIMITS).unwrap(),
        ResultOwner::person(1),
    );
    let lines = "x".repeat(99) + "\\n";
    let whole = format!(
        r#"{{"content":[{{"type":"text","text":"{}needle\n"}}],"deep":{}1{},"last":[7]}}"#,
        lines.repeat((16 << 20) / lines.len()),
        "[".repeat(100_000),
        "]".repeat(100_000),
    );
    let handle = results
        .keep(&owner, whole.as_bytes())
        .unwrap()
        .handle
        .to_string();
    let read = |what, offset| {
        results
            .read(
                &owner,
                &handle,
                &PieceRequest {
                    offset,
                    most: 1000,
                    room: u64::MAX,
                    what,
                },
            )
            .unwrap()
    };
    assert_eq!(read(PieceSelector::value("/last/0").unwrap(), 0).text, "7");
    assert_eq!(
        read(
            PieceSelector::value(&format!("/deep{}", "/0".repeat(400))).unwrap(),
            0
        )
        .text
        .len(),
        1000
    );
    let (mut offset, mut found) = (Some(0), String::new());
    while let Some(at) = offset {
        let piece = read(PieceSelector::matching("needle$").unwrap(), at);
        found.push_str(&piece.text);
        offset = piece.next;
    }
    let last = (16 << 20) / lines.len();
    assert_eq!(found, format!("{last}: needle\n"));
    assert_eq!(read(PieceSelector::Lines(5), last as u64).text, "needle");
}
