//! Objects edited in place, member by member.

use colibri_wire::json::Member;
use colibri_wire::{Edits, Json};

/// What becomes of a member of an object.
pub(crate) enum Change {
    /// It stays; edits inside its value may have been made.
    Keep,
    /// It goes, with its comma.
    Remove,
    /// Its value becomes this JSON.
    Replace(String),
}

/// Edits one object: every member as `change` says, then `insert`, members as JSON without outer commas, before all
/// others. Repeated keys are each asked about.
pub(crate) fn rewrite<'a>(
    edits: &mut Edits,
    object: Json<'a>,
    insert: &str,
    mut change: impl FnMut(&Member<'a>, &mut Edits) -> Change,
) {
    let start = object.span().start + 1;
    // Where the value of the last member that stays ends.
    let mut kept: Option<usize> = None;
    // What is taken out since then: from the first such key to the end of the last such value.
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
