//! The files that the helper reads as root, and the requests made of it: whatever stands in them,
//! it ends in a value or an error, and it takes nothing that is not JSON.

use colibri_jail_helper::policy::Policy;
use colibri_json::Document;
use colibri_registry::{Registry, is_server_id};
use serde_json::value::RawValue;

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let is_json =
        std::str::from_utf8(data).is_ok_and(|text| serde_json::from_str::<&RawValue>(text).is_ok());
    let document = Document::parse(data, "file");
    assert!(is_json || document.is_err(), "a document that is no JSON");
    match Registry::parse(data, "file") {
        Ok(registry) => {
            assert!(document.is_ok());
            for (id, entry) in &registry.servers {
                assert!(is_server_id(id));
                assert_eq!(entry.digest.len(), 64);
            }
            // The same file means the same.
            assert!(Registry::parse(data, "file").is_ok_and(|again| again == registry));
        }
        Err(error) => assert!(!error.to_string().contains(|c: char| c.is_control())),
    }
    match Policy::parse(data, "file") {
        Ok(_) => assert!(document.is_ok()),
        Err(error) => assert!(!error.to_string().contains(|c: char| c.is_control())),
    }
}
