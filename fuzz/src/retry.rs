//! Multi-round trips and tasks: what a server asks for, the state that a client brings back, and
//! what a retry becomes.
//!
//! Input: what to read (a byte), the bytes.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use colibri_mcpd::relay::request_state::{RequestStates, RetryBinding, RetryPurpose, digest};
use colibri_protocol::input::{
    RetryWith, read_input_required, read_retry, retry_edits, wrapped_state_edits,
};
use colibri_protocol::tasks::UpstreamTask;
use colibri_wire::{Edits, Json};

static STATES: LazyLock<RequestStates> =
    LazyLock::new(|| RequestStates::of_this_process().expect("random bytes"));

/// Applies edits, which leave JSON.
fn apply(text: &str, edits: &Edits) -> Vec<u8> {
    let edited = edits.apply(text.as_bytes());
    if let Err(error) = Json::parse(&edited) {
        panic!(
            "{error}: {text} became {}",
            String::from_utf8_lossy(&edited)
        );
    }
    edited
}

fn sealed(bytes: &[u8]) {
    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000);
    let bound = RetryBinding {
        uid: 7,
        server: "fs",
        digest: digest("tools/call", Json::parse(b"{\"name\":\"a\"}").ok(), None),
    };
    let state = STATES.seal(RetryPurpose::Server, &bound, 3, bytes, until);
    let resumed = STATES
        .unseal(&state, &bound, SystemTime::UNIX_EPOCH)
        .expect("our own");
    assert_eq!(
        (resumed.kind, resumed.record, &resumed.inner[..]),
        (RetryPurpose::Server, 3, bytes)
    );
    for other in [
        RetryBinding { uid: 8, ..bound },
        RetryBinding {
            server: "f",
            ..bound
        },
        RetryBinding {
            digest: [0; 32],
            ..bound
        },
    ] {
        assert!(
            STATES
                .unseal(&state, &other, SystemTime::UNIX_EPOCH)
                .is_err()
        );
    }
    assert!(STATES.unseal(&state, &bound, until).is_err());
    // One character is another.
    if let Some(first) = bytes.first() {
        let at = usize::from(*first) % state.len();
        let mut changed = state.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("ASCII");
        assert!(
            STATES
                .unseal(&changed, &bound, SystemTime::UNIX_EPOCH)
                .is_err(),
            "{at}"
        );
    }
    // Nobody makes one up.
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert!(STATES.unseal(text, &bound, SystemTime::UNIX_EPOCH).is_err());
    }
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let Some((what, bytes)) = data.split_first() else {
        return;
    };
    if what % 4 == 0 {
        return sealed(bytes);
    }
    let Ok(json) = Json::parse(bytes) else {
        return;
    };
    let json = json.detached();
    let text = json.text();
    match what % 4 {
        1 => {
            if let Ok(asked) = read_input_required(json) {
                let edited = apply(text, &wrapped_state_edits(json, "ours"));
                let edited = Json::parse(&edited).expect("JSON");
                assert!(
                    edited
                        .get("requestState")
                        .is_some_and(|state| state.is_string("ours"))
                );
                assert!(asked.requests.len() <= colibri_protocol::input::REQUESTS_LIMIT);
            }
        }
        2 => {
            if !json.is_object()
                || json
                    .ambiguous(&["requestState", "inputResponses"])
                    .is_some()
            {
                return;
            }
            let _ = read_retry(json.get("requestState"), json.get("inputResponses"));
            let with = RetryWith {
                state: Some("\"s\""),
                responses: Some("{}"),
            };
            let edited = apply(text, &retry_edits(json, with));
            let edited = Json::parse(&edited).expect("JSON");
            assert!(
                edited
                    .get("requestState")
                    .is_some_and(|state| state.is_string("s"))
            );
            let none = apply(text, &retry_edits(json, RetryWith::default()));
            assert!(
                Json::parse(&none)
                    .expect("JSON")
                    .get("requestState")
                    .is_none()
            );
        }
        _ => {
            if let Ok(task) = UpstreamTask::read(json) {
                let edited = apply(text, &task.edits("ours"));
                let edited =
                    UpstreamTask::read(Json::parse(&edited).expect("JSON")).expect("still a task");
                assert_eq!((&*edited.id, edited.is_over), ("ours", task.is_over));
            }
        }
    }
}
