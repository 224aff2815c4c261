//! Hosts that witness each other over a board that may do what it likes.

use std::collections::HashMap;
use std::fs;

use super::campaign::rounds;
use super::*;
use crate::host_witness::cosigned_directory;

/// The number of calls in each trail: with its state records some 40 records are sealed.
const CALLS: u64 = 18;

/// Writes so many calls to a trail and seals it; one of them may be another than the others.
fn write(state: &Path, calls: u64, forged: Option<u64>) {
    let (trail, _) = open(state, SegmentLimits::default());
    for i in 0..calls {
        let tool = if Some(i) == forged { "forged" } else { "tool" };
        let first = trail.append([enter(i, 1001, tool)]).unwrap().first;
        trail.append([exit(i, first, tool, true, i)]).unwrap();
    }
    trail.close().unwrap();
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// Three hosts, and what they have put on the board.
struct Hosts {
    place: tempfile::TempDir,
    /// By the host whose trail it is, and the witness.
    requests: HashMap<(&'static str, &'static str), String>,
    answers: HashMap<(&'static str, &'static str), String>,
}

const NAMES: [&str; 3] = ["one", "two", "three"];

impl Hosts {
    fn new() -> Hosts {
        let place = tempfile::tempdir().unwrap();
        for name in NAMES {
            fs::create_dir(place.path().join(name)).unwrap();
            write(&place.path().join(name), CALLS, None);
        }
        let (requests, answers) = (HashMap::new(), HashMap::new());
        Hosts {
            place,
            requests,
            answers,
        }
    }

    fn state(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn witness(&self, name: &str) -> PathBuf {
        witness_directory(&self.state(name))
    }

    /// The host requests, if there is something to sign.
    fn request(&mut self, host: &'static str, witness: &'static str) {
        let known = self
            .answers
            .get(&(host, witness))
            .filter(|note| !note.is_empty());
        let known = known.map(|note| {
            let key = text(&self.witness(witness).join("witness.pub"));
            store_cosignature(&self.state(host), (witness, &key), note).unwrap()
        });
        if let Some(request) = request_cosignature(&self.state(host), known).unwrap() {
            self.requests.insert((host, witness), request);
        }
    }

    /// The witness answers what is there.
    fn answer(
        &mut self,
        host: &'static str,
        witness: &'static str,
    ) -> Result<(), HostWitnessError> {
        let Some(request) = self.requests.get(&(host, witness)) else {
            return Ok(());
        };
        let key = text(&verifier_path(&self.state(host)));
        let answer = answer_request(&self.witness(witness), (host, &key), request, time(0))?;
        self.answers.insert((host, witness), answer);
        Ok(())
    }

    /// What a witness says of a host.
    fn seen(&self, witness: &str, host: &str) -> WitnessedHost {
        let seen = witnessed_hosts(&self.witness(witness)).unwrap();
        seen.into_iter().find(|seen| seen.host == host).unwrap()
    }
}

#[test]
fn hosts_sign_each_others_trails_as_these_grow() {
    let mut hosts = Hosts::new();
    for _ in 0..3 {
        for (host, witness) in NAMES
            .into_iter()
            .flat_map(|host| NAMES.map(|witness| (host, witness)))
        {
            if host != witness {
                hosts.request(host, witness);
                hosts.answer(host, witness).unwrap();
            }
        }
        for name in NAMES {
            write(&hosts.state(name), 3, None);
        }
    }
    let seen = witnessed_hosts(&hosts.witness("one")).unwrap();
    assert_eq!(
        seen.iter().map(|seen| &seen.host).collect::<Vec<_>>(),
        ["three", "two"]
    );
    assert!(
        seen.iter()
            .all(|seen| seen.rewritten.is_none() && seen.time > 0)
    );
    // What the others signed stands with the host itself, and vouches for its trail.
    let state = hosts.state("two");
    let log: Verifier = text(&verifier_path(&state)).parse().unwrap();
    let keys = ["one", "three"].map(|name| {
        text(&hosts.witness(name).join("witness.pub"))
            .parse::<WitnessKey>()
            .unwrap()
    });
    let cosigned = ["one", "three"].map(|name| {
        let note = text(&cosigned_directory(&state).join(format!("{name}.checkpoint")));
        CosignedCheckpoint::open(&note, &log, &keys).unwrap()
    });
    let heads = WitnessedHeads {
        cosigned: cosigned.to_vec(),
        ..WitnessedHeads::default()
    };
    let report = check(&state, &heads);
    assert!(
        report.is_sound() && report.promised_records == cosigned[0].records,
        "{report:#?}"
    );
    assert_eq!(report.cosigned_by.len(), 2);
}

/// Root on one of three hosts has its key, and writes its trail anew below what the others signed:
/// cut off, as long or longer, each time in another record. What its own daemon then requests names
/// it at each of the others.
#[test]
fn each_of_500_rewrites_is_named_by_the_other_hosts() {
    let mut hosts = Hosts::new();
    for witness in ["two", "three"] {
        hosts.request("one", witness);
        hosts.answer("one", witness).unwrap();
        // It requests again from what was signed.
        hosts.request("one", witness);
    }
    let signed = hosts.seen("two", "one").records;
    let honest = hosts.state("one");
    let kept = hosts.state("kept");
    fs::rename(&honest, &kept).unwrap();
    for round in 0..rounds(500) {
        let _ = fs::remove_dir_all(&honest);
        fs::create_dir(&honest).unwrap();
        fs::copy(key_path(&kept), key_path(&honest)).unwrap();
        // From two calls fewer to two more.
        write(&honest, CALLS - 2 + round % 5, Some(round % (CALLS - 2)));
        for witness in ["two", "three"] {
            hosts.request("one", witness);
            let refused = hosts.answer("one", witness);
            assert!(
                matches!(&refused, Err(HostWitnessError::Rewritten { signed: s, .. }) if *s == signed),
                "{round}: {refused:?}"
            );
            let seen = hosts.seen(witness, "one");
            let evidence = seen
                .rewritten
                .unwrap_or_else(|| panic!("{round}: {witness} has no evidence"));
            assert_eq!(seen.records, signed, "nothing was signed");
            fs::remove_file(evidence).unwrap();
            assert_eq!(hosts.seen(witness, "one").rewritten, None);
        }
    }
}

#[test]
fn a_board_that_changes_replays_or_makes_up_rows_gets_nothing_signed_and_nobody_accused() {
    let mut hosts = Hosts::new();
    hosts.request("one", "two");
    let first = hosts.requests[&("one", "two")].clone();
    hosts.answer("one", "two").unwrap();
    let old_answer = hosts.answers[&("one", "two")].clone();
    write(&hosts.state("one"), 3, None);
    hosts.request("one", "two");
    let second = hosts.requests[&("one", "two")].clone();
    let before = hosts.seen("two", "one");
    // Changed in any place: not the host's any more.
    for at in (0..second.len() - 1)
        .filter(|at| second.is_char_boundary(*at) && second.is_char_boundary(at + 1))
    {
        let mut bytes = second.clone().into_bytes();
        bytes[at] ^= 1;
        let changed = String::from_utf8(bytes).unwrap();
        hosts.requests.insert(("one", "two"), changed);
        let refused = hosts.answer("one", "two");
        assert!(
            matches!(refused, Err(HostWitnessError::Unsigned { .. })),
            "{at}: {refused:?}"
        );
    }
    for garbage in [
        "",
        "\n",
        "\n\n\n",
        "old 0\n\n",
        &second[..100],
        &"\u{fffd}".repeat(40_000),
        &second.repeat(200),
    ] {
        hosts.requests.insert(("one", "two"), garbage.to_owned());
        assert!(hosts.answer("one", "two").is_err(), "{garbage}");
    }
    // Another host's request, and the host under another key or name.
    hosts.request("three", "two");
    let foreign = hosts.requests[&("three", "two")].clone();
    hosts.requests.insert(("one", "two"), foreign.clone());
    assert!(hosts.answer("one", "two").is_err());
    let key = text(&verifier_path(&hosts.state("three")));
    let dir = hosts.witness("two");
    let other = answer_request(&dir, ("one", &key), &foreign, time(0));
    assert!(
        matches!(other, Err(HostWitnessError::OtherKey { .. })),
        "{other:?}"
    );
    for name in ["", "../x", ".x", "a/b", "a\n", &"x".repeat(65)] {
        let refused = answer_request(&dir, (name, &key), &foreign, time(0));
        assert!(
            matches!(refused, Err(HostWitnessError::Name(_))),
            "{refused:?}"
        );
    }
    assert_eq!(
        hosts.seen("two", "one"),
        before,
        "nothing was signed, and no evidence is there"
    );
    // Replayed: it is answered as before, and what the host requests then goes on.
    hosts.requests.insert(("one", "two"), first.clone());
    hosts.answer("one", "two").unwrap();
    assert_eq!(hosts.answers[&("one", "two")], old_answer);
    hosts.requests.insert(("one", "two"), second);
    hosts.answer("one", "two").unwrap();
    let after = hosts.seen("two", "one");
    assert!(after.records > before.records && after.rewritten.is_none());
    hosts.requests.insert(("one", "two"), first);
    hosts.answer("one", "two").unwrap();
    assert_eq!(hosts.seen("two", "one"), after);
    // An older answer takes nothing away from the host; one that the witness did not sign is none.
    let newest = hosts.answers[&("one", "two")].clone();
    let (state, key) = (hosts.state("one"), text(&dir.join("witness.pub")));
    store_cosignature(&state, ("two", &key), &newest).unwrap();
    store_cosignature(&state, ("two", &key), &old_answer).unwrap();
    assert_eq!(
        text(&cosigned_directory(&state).join("two.checkpoint")),
        newest
    );
    let own = prove_growth(&directory(&state), 0).unwrap().checkpoint;
    let bare = store_cosignature(&state, ("two", &key), &own);
    assert!(
        matches!(bare, Err(HostWitnessError::Unsigned { .. })),
        "{bare:?}"
    );
    let stranger = text(&hosts.witness("two").join("witness.pub")).replace("witness/", "witness/x");
    assert!(store_cosignature(&state, ("two", &stranger), &newest).is_err());
    for garbage in ["", "x\n\n", &newest[..60]] {
        assert!(store_cosignature(&state, ("two", &key), garbage).is_err());
    }
    // A witness that lost what it signed begins anew.
    fs::remove_dir_all(&dir).unwrap();
    write(&state, 3, None);
    let known = store_cosignature(&state, ("two", &key), &newest).unwrap();
    let request = request_cosignature(&state, Some(known)).unwrap().unwrap();
    hosts.requests.insert(("one", "two"), request);
    hosts.answer("one", "two").unwrap();
    assert_eq!(hosts.answers[&("one", "two")], "");
    hosts.request("one", "two");
    hosts.answer("one", "two").unwrap();
    assert!(hosts.seen("two", "one").records > after.records);
}
