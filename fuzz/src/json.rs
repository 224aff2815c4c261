//! Walking JSON in place, and reading envelopes, against serde_json's own reading.

use colibri_wire::envelope::EnvelopeKind as MessageKind;
use colibri_wire::json::JsonKind;
use colibri_wire::{Envelope, Json, RequestId};
use serde_json::Value;
use serde_json::value::RawValue;

/// Whether a walked value and serde_json's are the same. With repeated keys serde_json keeps the
/// last.
fn same(frame: &[u8], json: Json<'_>, value: &Value) {
    assert_eq!(&frame[json.span()], json.text().as_bytes());
    match value {
        Value::Null => assert_eq!(json.kind(), JsonKind::Null),
        Value::Bool(value) => assert_eq!(json.as_bool(), Some(*value)),
        Value::Number(number) => {
            assert_eq!(json.kind(), JsonKind::Number);
            assert_eq!(json.as_u64(), json.text().parse().ok());
            assert_eq!(
                &serde_json::from_str::<serde_json::Number>(json.text()).expect("a number"),
                number
            );
        }
        Value::String(text) => {
            assert_eq!(json.as_str().as_deref(), Some(text.as_str()));
            assert!(json.is_string(text));
            assert!(!json.is_string(&format!("{text}x")));
        }
        Value::Array(values) => {
            let elements: Vec<_> = json.elements().collect();
            assert_eq!(elements.len(), values.len());
            for (element, value) in elements.iter().zip(values) {
                same(frame, *element, value);
            }
        }
        Value::Object(map) => {
            let members: Vec<_> = json.members().collect();
            for (key, value) in map {
                let last = members
                    .iter()
                    .rev()
                    .find(|member| member.key.is_string(key));
                same(
                    frame,
                    last.expect("a member that serde_json sees").value,
                    value,
                );
                let first = members
                    .iter()
                    .find(|member| member.key.is_string(key))
                    .map(|member| member.value.span());
                assert_eq!(json.get(key).map(|value| value.span()), first);
            }
            for member in &members {
                let key = member.key.as_str().expect("serde_json took the key");
                assert!(
                    map.contains_key(&*key),
                    "a member that serde_json does not see"
                );
            }
            if members.len() > map.len() {
                // A key that is there twice is ambiguous.
                let twice = members.iter().enumerate().find_map(|(index, member)| {
                    let key = member.key.as_str()?;
                    members[..index]
                        .iter()
                        .any(|other| other.key.is_string(&key))
                        .then_some(key)
                });
                let key = twice.expect("one key is there twice");
                // The keys that are looked for are the protocol's: ASCII.
                if key.is_ascii() && !key.is_empty() {
                    assert_eq!(json.ambiguous(&[&key]), Some(&*key));
                }
            }
        }
    }
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let parsed = Json::parse(data);
    let text = std::str::from_utf8(data).ok();
    let raw = text.and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
    assert_eq!(parsed.is_ok(), raw.is_some());
    let envelope = Envelope::parse(data);
    let Ok(json) = parsed else {
        assert!(envelope.is_err());
        return;
    };
    assert_eq!(
        Json::part(data, json.span()).map(|part| part.text()),
        Some(json.text())
    );
    // Depth, numbers beyond any range and lone surrogates are valid, but more than serde_json's
    // values can hold.
    if let Ok(value) = serde_json::from_slice::<Value>(data) {
        same(data, json, &value);
        if let Ok(envelope) = &envelope {
            match envelope.kind {
                MessageKind::Request { id, method, .. } => {
                    assert_eq!(
                        value["method"],
                        Value::from(method.as_str().expect("a string"))
                    );
                    match &value["id"] {
                        Value::String(text) => {
                            assert_eq!(RequestId::of(id), RequestId::Text(text.as_str().into()))
                        }
                        other => assert!(other.is_number()),
                    }
                }
                MessageKind::Notification { .. } => assert!(value.get("id").is_none()),
                MessageKind::Answer { outcome, .. } => {
                    assert_eq!(outcome.is_ok(), value.get("result").is_some());
                    assert_eq!(outcome.is_err(), value.get("error").is_some());
                }
            }
        }
    }
}
