//! Hosts that witness each other's trails over a board in PostgreSQL.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use colibri_tests::{Daemon, LEGACY, Place, Postgres, is_short, open_trail, wait_for};
use colibri_trail::{EventRecord, TrailRecord};
use serde_json::{Value, json};

use super::postgres::{board, host, joined};
use super::tasks::ok;

/// Writes a trail with the key that is in a state directory, as root there can.
fn forge(state: &Path, starts: u32) {
    let trail = open_trail(state);
    for _ in 0..starts {
        let start = EventRecord {
            time: SystemTime::now(),
            event: "start",
            details: &[],
        };
        trail.append([TrailRecord::Event(start)]).unwrap();
    }
    trail.close().unwrap();
}

/// What `trail verify` says, and its status.
fn verified(place: &Place, more: &[&str]) -> (String, Option<i32>) {
    let output = place.trail_command(&[&["verify"], more].concat());
    let text = [output.stdout, output.stderr].concat();
    (
        String::from_utf8_lossy(&text).into_owned(),
        output.status.code(),
    )
}

/// The same as a program reads it.
fn report(place: &Place) -> Value {
    let mut json = place.colibri_mcp(&["--json", "trail", "--state-dir"]);
    let json = json
        .arg(place.path("state"))
        .arg("verify")
        .output()
        .unwrap();
    serde_json::from_slice(&json.stdout).unwrap_or(Value::Null)
}

/// What a host says of another host's trail: the records that it signed, and whether it has
/// evidence.
fn seen(place: &Place, host: &str) -> Option<(u64, bool)> {
    let hosts = report(place)["hosts"].as_array()?.clone();
    let host = hosts.into_iter().find(|seen| seen["host"] == host)?;
    Some((host["records"].as_u64()?, !host["rewritten"].is_null()))
}

/// Has a daemon seal its trail, as it does when it ends, and go on.
fn sealed<'a>(daemon: Daemon<'a>, place: &'a Place, postgres: &Postgres, name: &str) -> Daemon<'a> {
    daemon.stop();
    joined(place, postgres, name)
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn each_host_signs_the_others_trails_and_names_the_one_that_root_rewrites() {
    let postgres = board();
    let places = [host(), host(), host()];
    let [one, two, three] = &places;
    let mut daemons = Vec::new();
    for (place, name) in [(one, "one"), (two, "two"), (three, "three")] {
        let daemon = joined(place, &postgres, name);
        ok(
            &mut daemon.quiet(LEGACY),
            "fix__echo",
            json!({ "text": name }),
        );
        daemons.push(sealed(daemon, place, &postgres, name));
    }
    let all = [(one, "one"), (two, "two"), (three, "three")];
    wait_for("all to have signed for all", || {
        let is_signed = |(place, own): &(&Place, &str)| {
            all.iter()
                .filter(|(_, name)| name != own)
                .all(|(_, name)| seen(place, name).is_some_and(|(records, _)| records > 0))
        };
        all.iter().all(is_signed).then_some(())
    });
    // What two others signed is counted where their keys are named.
    let keys = [two, three].map(|place| {
        place
            .path("state/witness/witness.pub")
            .display()
            .to_string()
    });
    let text = wait_for("both cosignatures to be stored", || {
        let (text, _) = verified(one, &["--witness", &keys[0], "--witness", &keys[1]]);
        (text.matches("cosigned     ").count() == 2).then_some(text)
    });
    assert!(
        text.contains(": sound\n") && text.contains("2 cosignatures; what follows"),
        "{text}"
    );
    let (signed, _) = seen(two, "one").unwrap();

    // Root on the first rewrites its trail again and again, below what the others signed; its
    // daemon goes on there.
    let mut daemon = daemons.remove(0);
    let kept = one.path("kept");
    for round in 0..if is_short() { 2 } else { 6 } {
        daemon.stop();
        if round == 0 {
            fs::rename(one.path("state/trail"), &kept).unwrap();
        } else {
            fs::remove_dir_all(one.path("state/trail")).unwrap();
        }
        fs::remove_file(one.path("state/trail.head")).unwrap();
        // Shorter than what was signed, and longer.
        forge(
            &one.path("state"),
            if round % 2 == 0 { 1 } else { 40 + round },
        );
        daemon = joined(one, &postgres, "one");
        for (place, number) in [(two, 1), (three, 2)] {
            wait_for("the other host to name it", || {
                seen(place, "one").filter(|(_, rewritten)| *rewritten)
            });
            let (text, status) = verified(place, &[]);
            assert_eq!(status, Some(1), "{text}");
            assert!(
                text.contains(": sound\n")
                    && text.contains("  REWRITTEN: the trail of one was cut off or rewritten"),
                "{text}"
            );
            assert_eq!(
                seen(place, "one"),
                Some((signed, true)),
                "host {number} has signed nothing more"
            );
            // An operator has looked at it.
            fs::remove_file(place.path("state/witness/one.rewritten")).unwrap();
            assert_eq!(seen(place, "one"), Some((signed, false)));
        }
    }
    daemons[0].wait_for_log("the trail of the host one was cut off or rewritten below the");

    // It puts its trail back, and is witnessed again.
    daemon.stop();
    fs::remove_dir_all(one.path("state/trail")).unwrap();
    fs::remove_file(one.path("state/trail.head")).unwrap();
    fs::rename(&kept, one.path("state/trail")).unwrap();
    let daemon = sealed(joined(one, &postgres, "one"), one, &postgres, "one");
    let grown = wait_for("what follows to be signed", || {
        seen(two, "one").filter(|(records, rewritten)| *records > signed && !rewritten)
    });

    // The board's role may do what it likes with the rows: all is made good, and nobody is accused.
    for change in [
        "DELETE FROM colibri.cosignatures; DELETE FROM colibri.witness_requests",
        "UPDATE colibri.cosignatures SET note = 'x', key = repeat('y', 100000)",
        "UPDATE colibri.witness_requests SET request = replace(request, 'old 0', 'old 1') || repeat('z', 100000)",
        "UPDATE colibri.witness_requests a SET request = (SELECT b.request FROM colibri.witness_requests b
            WHERE b.host <> a.host LIMIT 1)",
        "INSERT INTO colibri.hosts (name, key, run, version) VALUES ('../../evil', 'k', '', ''), ('zzz', 'k2', '', '');
         INSERT INTO colibri.witness_requests VALUES ('zzz', 'two', 'x'), ('../../evil', 'two', 'x')",
    ] {
        postgres.sql("board", change);
        wait_for("the rows to be good again", || {
            let good = "SELECT count(*) FROM colibri.cosignatures WHERE length(note) BETWEEN 100 AND 5000
                AND length(key) < 200 AND host IN ('one', 'two', 'three')";
            (postgres.sql("board", good) == ["6"]).then_some(())
        });
    }
    for (place, _) in all {
        let (text, _) = verified(place, &[]);
        assert!(
            text.contains(": sound\n") && !text.contains("REWRITTEN"),
            "{text}"
        );
        assert_eq!(text.matches("witness of   ").count(), 2, "{text}");
    }
    assert!(seen(two, "one").unwrap() >= grown);
    daemon.assert_serves("fix__echo");
    daemon.stop();
    daemons.into_iter().for_each(Daemon::stop);
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn nothing_is_signed_for_a_host_with_another_key_than_hosts_json_says() {
    let postgres = board();
    let (one, two, other) = (host(), host(), host());
    let key = open_trail(&other.path("state")).verifier().to_string();
    one.hosts(&json!({ "hosts": { "two": { "key": key, "persons": [] } } }).to_string());
    let daemon = joined(&one, &postgres, "one");
    let second = sealed(joined(&two, &postgres, "two"), &two, &postgres, "two");
    daemon.wait_for_log("the host two has another key on the board than in hosts.json");
    assert_eq!(seen(&one, "two"), None);
    daemon.stop();
    second.stop();
}
