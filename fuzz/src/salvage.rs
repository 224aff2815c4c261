//! Finding the id of a message that cannot be read: never the wrong one, whatever pieces the
//! message comes in.
//!
//! Input: where to cut (2 bytes), the message.

use colibri_wire::Json;
use colibri_wire::json::JsonKind;
use colibri_wire::salvage::Salvage;

/// The longest id that is looked for.
const LONGEST: usize = 256;

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let Some((head, message)) = data.split_first_chunk::<2>() else {
        return;
    };
    let cut = usize::from(u16::from_le_bytes(*head)) % (message.len() + 1);
    let (mut whole, mut pieces) = (Salvage::default(), Salvage::default());
    whole.feed(message);
    pieces.feed(&message[..cut]);
    pieces.feed(&message[cut..]);
    assert_eq!(whole.id(), pieces.id());
    assert_eq!(whole.names_a_method(), pieces.names_a_method());
    if let Some(id) = whole.id() {
        let id = Json::parse(id.as_bytes()).expect("an id that is JSON");
        assert!(matches!(id.kind(), JsonKind::String | JsonKind::Number));
    }
    // Of a message that is readable, it is the id that everybody reads.
    let Ok(json) = Json::parse(message) else {
        return;
    };
    let members: Vec<_> = json.members().collect();
    let escaped = members
        .iter()
        .any(|member| member.key.text().contains('\\'));
    let ids: Vec<_> = members
        .iter()
        .filter(|member| member.key.is_string("id"))
        .collect();
    if !escaped && ids.len() <= 1 {
        let id = ids.first().map(|member| member.value);
        let wanted = id
            .filter(|id| {
                matches!(id.kind(), JsonKind::String | JsonKind::Number)
                    && id.text().len() <= LONGEST
            })
            .map(|id| id.text());
        assert_eq!(whole.id(), wanted);
        assert_eq!(
            whole.names_a_method(),
            members.iter().any(|member| member.key.is_string("method"))
        );
    }
}
