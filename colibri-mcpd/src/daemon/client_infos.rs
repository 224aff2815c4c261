//! The names that clients declare of themselves, each read once: a modern client repeats its own in
//! every request.

use std::collections::HashMap;
use std::sync::Arc;

use colibri_protocol::ClientInfo;
use colibri_wire::Json;
use parking_lot::Mutex;

/// The most declarations that are remembered.
const MOST: usize = 256;
/// The most bytes of one that is.
const LONGEST: usize = 4096;

/// The declarations that were read last, by their JSON.
#[derive(Default)]
pub(crate) struct ClientInfos(Mutex<HashMap<Box<str>, Arc<ClientInfo>>>);

impl ClientInfos {
    /// Reads a declaration. `None`: it has no name.
    pub(crate) fn read(&self, declared: Json<'_>) -> Option<Arc<ClientInfo>> {
        let text = declared.text();
        if text.len() > LONGEST {
            return ClientInfo::read(declared).map(Arc::new);
        }
        let mut known = self.0.lock();
        if let Some(info) = known.get(text) {
            return Some(info.clone());
        }
        let info = Arc::new(ClientInfo::read(declared)?);
        // Who declares something else each time costs others no more than to be read again.
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(text.into(), info.clone());
        Some(info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_is_read_once_and_no_number_of_them_is_too_much() {
        let infos = ClientInfos::default();
        let read = |text: &str| infos.read(Json::parse(text.as_bytes()).unwrap());
        let first = read(r#"{"name":"codex"}"#).unwrap();
        assert!(Arc::ptr_eq(&first, &read(r#"{"name":"codex"}"#).unwrap()));
        for number in 0..3 * MOST {
            assert_eq!(
                &*read(&format!(r#"{{"name":"{number}"}}"#)).unwrap().name,
                number.to_string()
            );
            assert!(infos.0.lock().len() <= MOST);
        }
        let long = format!(r#"{{"name":"long","icons":"{}"}}"#, "x".repeat(LONGEST));
        assert_eq!(&*read(&long).unwrap().name, "long");
        assert!(infos.0.lock().keys().all(|text| text.len() <= LONGEST));
        assert_eq!(read("{}"), None);
    }
}
