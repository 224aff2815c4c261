//! `record` and `replay`: a session in a file, answered from it, and compared with the trail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use colibri_tests::{Bridge, Era, Place, wait_for};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The answers of a session: some calls, one that fails, and a list.
fn session(place: &Place, era: Era, words: &[&str]) -> Vec<Value> {
    let mut bridge = Bridge::start(place.colibri_mcp(words));
    bridge.era = era;
    if era == Era::Legacy {
        bridge.open("2025-11-25");
    }
    let mut answers = vec![bridge.ask("tools/list", json!({}))];
    for (tool, arguments) in [
        ("echo", json!({ "a": 1, "text": "é \u{202e}" })),
        ("echo", json!({ "a": 1, "text": "é \u{202e}" })),
        ("echo", json!({ "text": "a secret" })),
        ("no such tool", json!({})),
    ] {
        answers.push(bridge.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        ));
    }
    let id = bridge.request(
        "tools/call",
        json!({ "name": "progress", "arguments": {}, "_meta": { "progressToken": "mine" } }),
    );
    answers.push(bridge.notification("notifications/progress")["params"].clone());
    answers.push(bridge.answer(id));
    assert!(bridge.end().success());
    for answer in &mut answers {
        if let Some(answer) = answer.as_object_mut() {
            answer.remove("id");
        }
    }
    answers
}

fn run(place: &Place, words: &[&str]) -> Output {
    place.colibri_mcp(words).output().unwrap()
}

/// A recording with its end made anew, as somebody does it who knows the format.
fn with_end(lines: &[String]) -> String {
    let body: String = lines[..lines.len() - 1]
        .iter()
        .map(|line| format!("{line}\n"))
        .collect();
    let sha256 = colibri_text::hex(&Sha256::digest(&body));
    format!(
        "{body}{}\n",
        json!({ "pairs": lines.len() - 2, "sha256": sha256 })
    )
}

#[test]
fn a_recorded_session_is_replayed_and_happened_so() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    for (era, name) in [(Era::Legacy, "legacy.jsonl"), (Era::Modern, "modern.jsonl")] {
        let file = place.path(name);
        let path = file.to_str().unwrap();
        let then = session(&place, era, &["record", "fix", path]);
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let taken = run(&place, &["record", "fix", path]);
        assert_eq!(
            taken.status.code(),
            Some(65),
            "it does not replace one: {taken:?}"
        );
        for strict in [&["replay", path][..], &["replay", "--strict", path]] {
            assert_eq!(session(&place, era, strict), then, "{strict:?}");
        }
        let verified = run(&place, &["record", "--verify", path]);
        let said = String::from_utf8_lossy(&verified.stdout);
        assert!(
            verified.status.success() && said.contains("it happened so"),
            "{verified:?}"
        );
        let unsealed = run(&place, &["record", "--verify", path, "--proof"]);
        assert_eq!(unsealed.status.code(), Some(65), "{unsealed:?}");
    }
    daemon.stop();
    // What was written is sealed now; the proofs are those of `trail proof`.
    let daemon = place.start(&[]);
    let path = place.path("legacy.jsonl");
    let proved = run(
        &place,
        &["record", "--verify", path.to_str().unwrap(), "--proof"],
    );
    let said = String::from_utf8(proved.stdout).unwrap();
    let proofs: Vec<&str> = said.split("c2sp.org/tlog-proof@v1\n").skip(1).collect();
    assert!(proofs.len() > 10, "{said}");
    for proof in proofs {
        let file = place.path("proof");
        fs::write(
            &file,
            format!("c2sp.org/tlog-proof@v1\n{}\n", proof.trim_end()),
        )
        .unwrap();
        let words = ["trail", "check-proof", file.to_str().unwrap()];
        let checked = run(&place, &words);
        assert!(checked.status.success(), "{checked:?}");
    }
    daemon.stop();
}

#[test]
fn what_was_not_so_is_refused() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let file = place.path("session.jsonl");
    let path = file.to_str().unwrap();
    session(&place, Era::Legacy, &["record", "fix", path]);
    let sound = fs::read_to_string(&file).unwrap();
    let refused = |text: &str, status: i32, why: &str| {
        let other = place.path("edited.jsonl");
        fs::write(&other, text).unwrap();
        let ran = run(&place, &["record", "--verify", other.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.code() == Some(status) && said.contains(why),
            "{why}: {said} {text}"
        );
    };
    refused(&sound[..sound.len() / 2], 65, "cut");
    refused("", 65, "cut");
    refused(&sound.replacen("a secret", "a Secret", 1), 65, "edited");
    // 500 edits, of which most have the right end again.
    let lines: Vec<String> = sound.lines().map(str::to_owned).collect();
    let mut edits = 0;
    let mut seed = 1_u64;
    while edits < 500 {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = (seed >> 33) as usize % (lines.len() - 1);
        let mut changed = lines.clone();
        match edits % 4 {
            0 if at > 0 => drop(changed.remove(at)),
            1 if at > 1 => changed.swap(at, at - 1),
            2 if at > 0 => changed.insert(at, lines[at].clone()),
            _ => {
                let line = &lines[at];
                let mut index = (seed >> 40) as usize % line.len();
                while !line.is_char_boundary(index)
                    || !line[index..].starts_with(|c: char| c.is_ascii_alphanumeric())
                {
                    index = (index + 1) % line.len();
                }
                let new = if line[index..].starts_with('7') {
                    "8"
                } else {
                    "7"
                };
                changed[at].replace_range(index..=index, new);
            }
        }
        if changed == lines {
            continue;
        }
        edits += 1;
        let other = place.path("edited.jsonl");
        fs::write(&other, with_end(&changed)).unwrap();
        let ran = run(&place, &["record", "--verify", other.to_str().unwrap()]);
        assert!(
            matches!(ran.status.code(), Some(1 | 65)),
            "edit {edits}: {ran:?} {changed:?}"
        );
    }
    // Another installation's trail.
    let elsewhere = Place::of_fixture(&[], json!({}));
    let other = elsewhere.start(&[]);
    let ran = run(&elsewhere, &["record", "--verify", path]);
    assert!(
        ran.status.code() == Some(1) && says(&ran, "it is of the trail"),
        "{ran:?}"
    );
    other.stop();
    // Definitions that changed since.
    place.defines(
        "fix",
        "definitions",
        r#"[{"name":"echo","description":"another","inputSchema":{"type":"object"}}]"#,
    );
    let restarted = run(&place, &["server", "restart", "fix"]);
    assert!(restarted.status.success(), "{restarted:?}");
    // They are known when it has started again, which a call has it do.
    let ran = wait_for("the changed definitions", || {
        run(&place, &["call", "fix", "echo", "text=x"]);
        let ran = run(&place, &["record", "--verify", path]);
        (ran.status.code() != Some(0)).then_some(ran)
    });
    assert!(
        ran.status.code() == Some(1) && says(&ran, "changed since"),
        "{ran:?}"
    );
    let missing = run(
        &place,
        &["replay", Path::new("/nonexistent").to_str().unwrap()],
    );
    assert_eq!(missing.status.code(), Some(66));
    daemon.stop();
}

fn says(ran: &Output, text: &str) -> bool {
    String::from_utf8_lossy(&ran.stderr).contains(text)
}
