//! Requests in flight towards a peer, by the ids that it sees.
//!
//! An id is a slot and how often that slot was given out. It is at most 2^53-1, which every reader
//! of JSON holds exactly, and never comes a second time in the peer's life: a late, a second or an
//! invented answer finds nothing.

/// Bits of an id that say which slot.
const SLOT_BITS: u32 = 18;
/// The most things in flight.
const MAX_SLOTS: usize = 1 << SLOT_BITS;
/// The number of times that a slot is given out.
const MAX_TURNS: u64 = (1 << (53 - SLOT_BITS)) - 1;
/// Slots that stay although nothing is in flight.
const KEPT_SLOTS: usize = 1024;

/// Things in flight.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<SlabSlot<T>>,
    free: Vec<u32>,
    used: usize,
    /// The number of uses that removed slots may have had.
    before: u64,
}

#[derive(Debug)]
struct SlabSlot<T> {
    turn: u64,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
            used: 0,
            before: 0,
        }
    }
}

fn parts(id: u64) -> (usize, u64) {
    ((id & (MAX_SLOTS as u64 - 1)) as usize, id >> SLOT_BITS)
}

impl<T> Slab<T> {
    /// An id that was never given out before. It finds nothing until [`Slab::put`]. `None`: too
    /// much is in flight.
    pub fn reserve(&mut self) -> Option<u64> {
        let slot = match self.free.pop() {
            Some(slot) => slot as usize,
            None if self.slots.len() < MAX_SLOTS && self.before < MAX_TURNS => {
                self.slots.push(SlabSlot {
                    turn: self.before,
                    value: None,
                });
                self.slots.len() - 1
            }
            None => return None,
        };
        let turn = self.slots[slot].turn + 1;
        self.slots[slot].turn = turn;
        Some(turn << SLOT_BITS | slot as u64)
    }

    /// Nothing is in flight under a reserved id: its slot is for others.
    pub fn give_back(&mut self, id: u64) {
        let (slot, turn) = parts(id);
        // One whose turns are spent stays empty.
        if turn < MAX_TURNS {
            self.free.push(slot as u32);
        }
        // All of them: an id that is reserved has its slot until it is put or given back.
        if self.free.len() == self.slots.len() && self.slots.len() > KEPT_SLOTS {
            self.before = self
                .slots
                .iter()
                .map(|slot| slot.turn)
                .max()
                .unwrap_or(self.before);
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// Puts a thing under a reserved id.
    pub fn put(&mut self, id: u64, value: T) {
        self.slots[parts(id).0].value = Some(value);
        self.used += 1;
    }

    /// The request in flight under an id.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let (slot, turn) = parts(id);
        let slot = self.slots.get_mut(slot).filter(|slot| slot.turn == turn)?;
        slot.value.as_mut()
    }

    /// Takes what is in flight under an id.
    pub fn remove(&mut self, id: u64) -> Option<T> {
        let (slot, turn) = parts(id);
        let slot = self.slots.get_mut(slot).filter(|slot| slot.turn == turn)?;
        let value = slot.value.take()?;
        self.used -= 1;
        self.give_back(id);
        Some(value)
    }

    /// True if an id was ever given out.
    pub fn was_given(&self, id: u64) -> bool {
        let (slot, turn) = parts(id);
        let last = self.slots.get(slot).map_or(self.before, |slot| slot.turn);
        (1..=last).contains(&turn)
    }

    /// The number of requests in flight.
    pub fn len(&self) -> usize {
        self.used
    }

    /// True if nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The requests in flight, with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let value = slot.value.as_ref()?;
            Some((slot.turn << SLOT_BITS | index as u64, value))
        })
    }

    /// The same, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// Takes everything that is in flight.
    pub fn take_all(&mut self) -> Vec<T> {
        let ids: Vec<u64> = self.iter().map(|(id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    #[test]
    fn a_slot_whose_turns_are_spent_retires() {
        let mut slab = Slab::default();
        let first = slab.reserve().unwrap();
        slab.give_back(first);
        slab.slots[0].turn = MAX_TURNS - 1;
        let last = slab.reserve().unwrap();
        assert_eq!(last, (1 << 53) - (1 << SLOT_BITS));
        slab.put(last, "last");
        assert_eq!(slab.remove(last), Some("last"));
        let next = slab.reserve().unwrap();
        assert_eq!(parts(next), (1, 1));
        assert!(slab.was_given(last) && slab.was_given(first) && slab.get_mut(last).is_none());
    }

    #[test]
    fn what_was_many_costs_nothing_once_it_is_over() {
        let mut slab = Slab::default();
        let ids: Vec<u64> = (0..5000).map(|_| slab.reserve().unwrap()).collect();
        ids.iter().for_each(|id| slab.put(*id, ()));
        assert_eq!(slab.take_all().len(), 5000);
        assert!(slab.slots.capacity() == 0 && slab.is_empty());
        let after = slab.reserve().unwrap();
        assert!(
            !ids.contains(&after)
                && ids
                    .iter()
                    .all(|id| slab.was_given(*id) && slab.get_mut(*id).is_none())
        );
    }

    #[test]
    fn a_reserved_id_keeps_its_slot_while_all_others_end() {
        let mut slab = Slab::default();
        let reserved = slab.reserve().unwrap();
        let ids: Vec<u64> = (0..5000).map(|_| slab.reserve().unwrap()).collect();
        ids.iter().for_each(|id| slab.put(*id, "other"));
        assert_eq!(slab.take_all().len(), 5000);
        slab.put(reserved, "late");
        assert_eq!(slab.remove(reserved), Some("late"));
    }

    proptest! {
        #[test]
        fn every_id_is_given_once_and_finds_its_own(steps in proptest::collection::vec((0u8..4, any::<proptest::sample::Index>()), 1..200)) {
            let mut slab = Slab::default();
            let (mut model, mut given) = (BTreeMap::new(), BTreeSet::new());
            for (value, (step, which)) in steps.into_iter().enumerate() {
                let pick = |ids: Vec<u64>| (!ids.is_empty()).then(|| ids[which.index(ids.len())]);
                match step {
                    0 | 1 => {
                        let id = slab.reserve().unwrap();
                        prop_assert!(given.insert(id) && id < 1 << 53 && id > 0);
                        if step == 0 {
                            slab.put(id, value);
                            model.insert(id, value);
                        } else {
                            slab.give_back(id);
                        }
                    }
                    _ => {
                        if let Some(id) = pick(given.iter().copied().collect()) {
                            prop_assert_eq!(slab.remove(id), model.remove(&id));
                        }
                    }
                }
                prop_assert_eq!(slab.len(), model.len());
                prop_assert!(given.iter().all(|id| slab.was_given(*id)));
                let found: BTreeMap<_, _> = slab.iter().map(|(id, value)| (id, *value)).collect();
                prop_assert_eq!(&found, &model);
            }
            prop_assert!(!slab.was_given(0) && !slab.was_given(7) && !slab.was_given(u64::MAX));
        }
    }
}
