//! Objects edited in place, member by member.

use colibri_wire::json::JsonMember;
use colibri_wire::{Edits, Json};

/// The change to a member of an object.
pub(crate) enum Change {
    /// The member stays; `change` may have made edits inside its value.
    Keep,
    /// The member is removed, with its comma.
    Remove,
    /// The value is replaced by this JSON.
    Replace(String),
}

/// Edits one object: calls `change` for each member, then inserts `insert` before all others.
/// `insert` is members as JSON, without a comma at either end. `change` is called for each member
/// of a repeated key.
pub(crate) fn rewrite<'a>(
    edits: &mut Edits,
    object: Json<'a>,
    insert: &str,
    mut change: impl FnMut(&JsonMember<'a>, &mut Edits) -> Change,
) {
    let start = object.span().start + 1;
    // The end of the value of the last member that stays.
    let mut kept: Option<usize> = None;
    // The range that was removed since then: from the first removed key to the end of the last
    // removed value.
    let mut removed: Option<(usize, usize)> = None;
    for member in object.members() {
        let (key, value) = (member.key.span(), member.value.span());
        let change = change(&member, edits);
        if let Change::Remove = change {
            removed = Some((removed.map_or(key.start, |(from, _)| from), value.end));
            continue;
        }
        if let Some((from, _)) = removed.take() {
            edits.replace(from..key.start, "");
        }
        kept = Some(value.end);
        if let Change::Replace(with) = change {
            edits.replace(value, with);
        }
    }
    if let Some((from, to)) = removed {
        edits.replace(kept.unwrap_or(from)..to, "");
    }
    if !insert.is_empty() {
        edits.insert(
            start,
            if kept.is_some() {
                format!("{insert},")
            } else {
                insert.to_owned()
            },
        );
    }
}
