//! Exclusive use of a process of a server that may make requests: a legacy server's request names
//! no call, so calls are in one process only if it does not matter which of them it is about. The
//! next gets a process beside it, as long as there may be more; the last of them is shared by all
//! that find none.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::state::ProcessKey;
use crate::relay::Call;
use colibri_protocol::Askable;
use parking_lot::Mutex;

/// The person who would be asked about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::servers) enum SlotHolder {
    /// Nobody can be.
    Nobody,
    /// The legacy client of this session, whichever of its calls it is about.
    Client(u64),
    /// A modern client, in answer to this one call.
    Call,
}

impl SlotHolder {
    /// Of a call to a server that may ask for this.
    pub(in crate::servers) fn of(call: &Call, may_ask: Askable) -> SlotHolder {
        if may_ask.both(call.askable()) == Askable::NOTHING {
            SlotHolder::Nobody
        } else if call.version.is_modern() {
            SlotHolder::Call
        } else {
            SlotHolder::Client(call.client.session.number)
        }
    }

    /// True if the same is asked about another call, whichever of both a request is about.
    pub(in crate::servers) fn is_as(self, other: SlotHolder) -> bool {
        self == other && self != SlotHolder::Call
    }
}

/// The slots of one server.
#[derive(Default)]
pub(in crate::servers) struct ExclusiveSlots {
    /// The calls in each process, and their number.
    taken: Mutex<BTreeMap<ProcessKey, (SlotHolder, usize)>>,
}

/// A call's turn. Dropping it is the end of it.
pub(in crate::servers) struct ExclusiveSlot {
    /// The process.
    pub key: ProcessKey,
    turns: Arc<ExclusiveSlots>,
}

impl ExclusiveSlots {
    /// A slot in this process, or in one of those beside it that make `most` with it. `None`:
    /// others have them all.
    pub(in crate::servers) fn take(
        self: &Arc<Self>,
        first: ProcessKey,
        most: usize,
        whose: SlotHolder,
    ) -> Option<ExclusiveSlot> {
        let mut taken = self.taken.lock();
        let is_as = |(key, (of, _)): &(&ProcessKey, &(SlotHolder, usize))| {
            key.is_beside(first) && of.is_as(whose)
        };
        let mut keys = (0..most).map(|number| first.beside(number));
        let mut free = || keys.find(|key| !taken.contains_key(key));
        let key = taken
            .iter()
            .find(is_as)
            .map(|(key, _)| *key)
            .or_else(&mut free)?;
        taken.entry(key).or_insert((whose, 0)).1 += 1;
        Some(ExclusiveSlot {
            key,
            turns: self.clone(),
        })
    }
}

impl Drop for ExclusiveSlot {
    fn drop(&mut self) {
        let mut taken = self.turns.taken.lock();
        if let Some((_, count)) = taken.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: ProcessKey = ProcessKey::Uid(1);

    #[test]
    fn there_is_one_call_of_a_modern_client_in_a_process_and_then_a_second_process() {
        let turns: Arc<ExclusiveSlots> = Arc::default();
        let take = |key| turns.take(key, 4, SlotHolder::Call);
        let mut all: Vec<_> = (0..4).map(|_| take(FIRST).unwrap()).collect();
        let keys: Vec<_> = all.iter().map(|turn| turn.key).collect();
        assert_eq!(keys[0], FIRST);
        assert!(
            (0..4).all(|number| keys[number] == FIRST.beside(number)),
            "{keys:?}"
        );
        assert!(keys.iter().all(|key| key.uid() == Some(1)));
        // Others have theirs.
        assert!(take(ProcessKey::Uid(2)).is_some());
        assert!(take(ProcessKey::Connection(1, 7)).is_some());
        assert!(take(FIRST).is_none());
        drop(all.remove(2));
        assert_eq!(take(FIRST).unwrap().key, keys[2]);
        drop(all);
        assert_eq!(take(FIRST).unwrap().key, FIRST);
        assert!(turns.taken.lock().is_empty());
        // Any number.
        assert_eq!(
            turns
                .take(FIRST, usize::MAX, SlotHolder::Nobody)
                .unwrap()
                .key,
            FIRST
        );
    }

    #[test]
    fn calls_of_which_the_same_client_is_asked_are_together() {
        let turns: Arc<ExclusiveSlots> = Arc::default();
        let take = |whose| turns.take(FIRST, 3, whose);
        let (one, other) = (SlotHolder::Client(1), SlotHolder::Client(2));
        let first = take(one).unwrap();
        let second = take(other).unwrap();
        let nobodys = take(SlotHolder::Nobody).unwrap();
        assert_eq!(
            [first.key, second.key, nobodys.key],
            [FIRST, FIRST.beside(1), FIRST.beside(2)]
        );
        let more: Vec<_> = (0..100)
            .flat_map(|_| {
                [
                    take(one).unwrap(),
                    take(other).unwrap(),
                    take(SlotHolder::Nobody).unwrap(),
                ]
            })
            .collect();
        assert!(more.chunks(3).all(|three| three[0].key == first.key
            && three[1].key == second.key
            && three[2].key == nobodys.key));
        assert!(take(SlotHolder::Client(3)).is_none() && take(SlotHolder::Call).is_none());
        drop(first);
        assert!(take(SlotHolder::Client(3)).is_none());
        drop(more);
        assert_eq!(take(SlotHolder::Client(3)).unwrap().key, FIRST);
    }
}
