//! Usage by owner, and eviction: the owner of most gives up the oldest for something new.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use super::files::EarlierResult;
use super::stored_result::{Handle, KEPT_FOR, NotStored, ResultLimits, ResultOwner};

/// The least bytes that a result counts for: a block of the disk. It bounds how many there can be.
const BLOCK: u64 = 4096;

/// All that is kept, without the files.
#[derive(Debug)]
pub(super) struct Index {
    limits: ResultLimits,
    /// By owner first: what is another's is not found, and for nobody is it found out why.
    kept: HashMap<(ResultOwner, Handle), IndexEntry>,
    owners: HashMap<ResultOwner, OwnerIndex>,
    /// Bytes of each user, those that are being written included.
    users: HashMap<u32, u64>,
    total: u64,
    next: u64,
}

#[derive(Debug, Default)]
struct OwnerIndex {
    bytes: u64,
    /// The oldest first.
    order: BTreeMap<u64, Handle>,
}

/// One of them.
#[derive(Debug, Clone)]
pub(super) struct IndexEntry {
    pub(super) length: u64,
    /// True if it is known to be as it was written.
    pub(super) verified: bool,
    created: SystemTime,
    number: u64,
}

impl IndexEntry {
    fn is_over(&self, now: SystemTime) -> bool {
        // A clock that was set back makes nobody younger than new.
        now.duration_since(self.created)
            .is_ok_and(|age| age >= KEPT_FOR)
    }
}

fn counts(length: u64) -> u64 {
    length.max(BLOCK)
}

impl Index {
    pub(super) fn new(limits: ResultLimits) -> Index {
        Index {
            limits,
            kept: HashMap::new(),
            owners: HashMap::new(),
            users: HashMap::new(),
            total: 0,
            next: 0,
        }
    }

    /// Takes bytes for a result that is to be written. What goes for it is not found any more; its
    /// files are the caller's to remove, whatever comes of this.
    ///
    /// # Errors
    /// There cannot be room for it.
    pub(super) fn reserve(
        &mut self,
        owner: &ResultOwner,
        length: u64,
        gone: &mut Vec<Handle>,
    ) -> Result<(), NotStored> {
        let (more, limits) = (counts(length), self.limits);
        let most = limits.per_user.min(limits.total);
        if more > most {
            return Err(NotStored::TooLong(length, most));
        }
        while self
            .users
            .get(&owner.uid)
            .is_some_and(|bytes| bytes + more > limits.per_user)
        {
            gone.push(self.give_up((owner, more)).ok_or(NotStored::Busy)?);
        }
        while self.total + more > limits.total {
            gone.push(
                self.give_up_of_all(Some((owner.uid, more)))
                    .ok_or(NotStored::Busy)?,
            );
        }
        *self.users.entry(owner.uid).or_default() += more;
        self.total += more;
        Ok(())
    }

    /// Makes a reservation usage, since the result is written, or frees it.
    pub(super) fn settle(
        &mut self,
        owner: &ResultOwner,
        handle: Handle,
        length: u64,
        written: Option<SystemTime>,
    ) {
        match written {
            Some(created) => self.insert(owner.clone(), handle, length, created, true),
            None => self.give_back(owner.uid, counts(length)),
        }
    }

    /// Takes over a result that an earlier daemon kept. What goes for it is given back.
    pub(super) fn adopt(&mut self, found: EarlierResult) -> Vec<Handle> {
        let (owner, mut gone) = (ResultOwner::person(found.uid), Vec::new());
        match self.reserve(&owner, found.length, &mut gone) {
            Ok(()) => self.insert(owner, found.handle, found.length, found.created, false),
            Err(_) => gone.push(found.handle),
        }
        gone
    }

    fn insert(
        &mut self,
        owner: ResultOwner,
        handle: Handle,
        length: u64,
        created: SystemTime,
        verified: bool,
    ) {
        let number = self.next;
        self.next += 1;
        let owned = self.owners.entry(owner.clone()).or_default();
        owned.bytes += counts(length);
        owned.order.insert(number, handle);
        let entry = IndexEntry {
            length,
            verified,
            created,
            number,
        };
        self.kept.insert((owner, handle), entry);
    }

    fn give_back(&mut self, uid: u32, bytes: u64) {
        self.total -= bytes;
        if let Some(of_user) = self.users.get_mut(&uid) {
            *of_user -= bytes;
            if *of_user == 0 {
                self.users.remove(&uid);
            }
        }
    }

    /// Gives up the oldest of the user who has most, with what is being written of them; who asks
    /// for space, if it is for a result, has that space already. `None`: the user has nothing to
    /// give up, and nobody loses anything to a user who has more.
    fn give_up_of_all(&mut self, asks: Option<(u32, u64)>) -> Option<Handle> {
        let more = |uid| {
            asks.filter(|(asks, _)| *asks == uid)
                .map_or(0, |(_, more)| more)
        };
        let owners = self.owners.keys().map(|owner| owner.uid);
        let uids = owners.chain(asks.map(|(uid, _)| uid));
        let most = uids.max_by_key(|uid| self.users.get(uid).unwrap_or(&0) + more(*uid))?;
        self.give_up((&ResultOwner::person(most), more(most)))
    }

    /// Gives up the oldest of the user's owners who has most; `owner` has what it asks for already.
    fn give_up(&mut self, (owner, more): (&ResultOwner, u64)) -> Option<Handle> {
        let has =
            |of: &ResultOwner, owned: &OwnerIndex| owned.bytes + if of == owner { more } else { 0 };
        let owners = self.owners.iter().filter(|(of, _)| of.uid == owner.uid);
        let (of, owned) = owners.max_by_key(|(of, owned)| has(of, owned))?;
        let (of, handle) = (of.clone(), *owned.order.first_key_value()?.1);
        self.remove(&of, handle);
        Some(handle)
    }

    /// Bytes of results that are being written.
    pub(super) fn being_written(&self) -> u64 {
        self.total - self.given_up_at_most()
    }

    /// Bytes that can be given up.
    pub(super) fn given_up_at_most(&self) -> u64 {
        self.owners.values().map(|owned| owned.bytes).sum()
    }

    /// Gives so many bytes up, always the oldest of the user who has most: for the trail, or for a
    /// result of `asks`, whose space is reserved. False if there are not so many: for a result
    /// nothing is given up then.
    pub(super) fn give_way(
        &mut self,
        bytes: u64,
        asks: Option<u32>,
        gone: &mut Vec<Handle>,
    ) -> bool {
        if asks.is_some() && bytes > self.given_up_at_most() {
            return false;
        }
        let before = self.total;
        while before - self.total < bytes {
            let Some(handle) = self.give_up_of_all(asks.map(|uid| (uid, 0))) else {
                return false;
            };
            gone.push(handle);
        }
        true
    }

    /// Gives one up.
    pub(super) fn remove(&mut self, owner: &ResultOwner, handle: Handle) {
        let Some(entry) = self.kept.remove(&(owner.clone(), handle)) else {
            return;
        };
        if let Some(owned) = self.owners.get_mut(owner) {
            owned.bytes -= counts(entry.length);
            owned.order.remove(&entry.number);
            if owned.order.is_empty() {
                self.owners.remove(owner);
            }
        }
        self.give_back(owner.uid, counts(entry.length));
    }

    /// The result that this owner has under a handle, if its time is not over.
    pub(super) fn find(
        &self,
        owner: &ResultOwner,
        handle: Handle,
        now: SystemTime,
    ) -> Option<IndexEntry> {
        let entry = self.kept.get(&(owner.clone(), handle));
        entry.filter(|entry| !entry.is_over(now)).cloned()
    }

    /// It was seen to be as it was written.
    pub(super) fn verified(&mut self, owner: &ResultOwner, handle: Handle) {
        if let Some(entry) = self.kept.get_mut(&(owner.clone(), handle)) {
            entry.verified = true;
        }
    }

    /// Gives up those whose time is over.
    pub(super) fn expire(&mut self, now: SystemTime) -> Vec<Handle> {
        let over = self.kept.iter().filter(|(_, entry)| entry.is_over(now));
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        let gone = over.iter().map(|(_, handle)| *handle).collect();
        for (owner, handle) in over {
            self.remove(&owner, handle);
        }
        gone
    }

    /// Gives up all that an owner has.
    pub(super) fn forget(&mut self, owner: &ResultOwner) -> Vec<Handle> {
        let owned = self.owners.get(owner);
        let gone: Vec<_> = owned
            .into_iter()
            .flat_map(|owned| owned.order.values().copied())
            .collect();
        for handle in &gone {
            self.remove(owner, *handle);
        }
        gone
    }

    /// Bytes that are kept in all, and results.
    #[cfg(test)]
    pub(super) fn counted(&self) -> (u64, usize) {
        (self.total, self.kept.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn handle(number: u32) -> Handle {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        Handle(bytes)
    }

    fn agent(uid: u32, session: &str) -> ResultOwner {
        ResultOwner {
            uid,
            session: Some(session.into()),
        }
    }

    /// Keeps so many blocks under a number; what went for it.
    fn keep(index: &mut Index, owner: &ResultOwner, number: u32, blocks: u64) -> Vec<Handle> {
        let mut gone = Vec::new();
        index.reserve(owner, blocks * BLOCK, &mut gone).unwrap();
        index.settle(
            owner,
            handle(number),
            blocks * BLOCK,
            Some(SystemTime::UNIX_EPOCH),
        );
        gone
    }

    fn index(per_user: u64, total: u64) -> Index {
        Index::new(ResultLimits {
            per_user: per_user * BLOCK,
            total: total * BLOCK,
        })
    }

    #[test]
    fn the_oldest_of_who_has_most_goes_first() {
        let mut index = index(10, 15);
        let (one, two) = (ResultOwner::person(1), ResultOwner::person(2));
        assert_eq!(keep(&mut index, &one, 1, 4), []);
        assert_eq!(keep(&mut index, &one, 2, 4), []);
        assert_eq!(keep(&mut index, &one, 3, 4), [handle(1)]);
        assert_eq!(keep(&mut index, &one, 4, 1), [], "8 and 1 are within 10");
        assert_eq!(keep(&mut index, &two, 5, 6), [], "9 and 6 are within 15");
        assert_eq!(
            keep(&mut index, &two, 6, 1),
            [handle(2)],
            "the first has most"
        );
        assert_eq!(keep(&mut index, &two, 7, 3), [], "5 and 10 are within both");
        assert_eq!(keep(&mut index, &two, 8, 1), [handle(5)]);
        assert_eq!(index.counted(), (10 * BLOCK, 5));
        assert!(
            index
                .find(&two, handle(5), SystemTime::UNIX_EPOCH)
                .is_none()
        );
        assert!(
            index
                .find(&two, handle(7), SystemTime::UNIX_EPOCH)
                .is_some()
        );
    }

    #[test]
    fn an_agent_takes_no_more_than_half_of_what_its_person_has() {
        let mut index = index(10, 100);
        let (person, agent) = (ResultOwner::person(1), agent(1, "a"));
        for number in 0..5 {
            keep(&mut index, &person, number, 1);
        }
        for number in 100..200 {
            keep(&mut index, &agent, number, 1);
        }
        let is_there = |number| {
            index
                .find(&person, handle(number), SystemTime::UNIX_EPOCH)
                .is_some()
        };
        assert!((0..5).all(is_there));
        assert_eq!(index.counted(), (10 * BLOCK, 10));
    }

    #[test]
    fn small_ones_count_for_a_block_so_that_there_are_not_too_many() {
        let mut index = index(3, 100);
        let (owner, mut gone) = (ResultOwner::person(1), Vec::new());
        for number in 0..10 {
            index.reserve(&owner, 1, &mut gone).unwrap();
            index.settle(&owner, handle(number), 1, Some(SystemTime::UNIX_EPOCH));
        }
        assert_eq!(index.counted(), (3 * BLOCK, 3));
        assert_eq!(gone, (0..7).map(handle).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_being_written_counts_and_makes_no_room_for_others() {
        let mut index = index(10, 12);
        let (owner, mut gone) = (ResultOwner::person(1), Vec::new());
        index.reserve(&owner, 8 * BLOCK, &mut gone).unwrap();
        assert!(matches!(
            index.reserve(&owner, 3 * BLOCK, &mut gone),
            Err(NotStored::Busy)
        ));
        let other = ResultOwner::person(2);
        assert!(matches!(
            index.reserve(&other, 5 * BLOCK, &mut gone),
            Err(NotStored::Busy)
        ));
        index.settle(&owner, handle(1), 8 * BLOCK, None);
        assert_eq!((index.counted(), index.users.len()), ((0, 0), 0));
        assert!(matches!(
            index.reserve(&owner, 11 * BLOCK, &mut gone),
            Err(NotStored::TooLong(..))
        ));
        assert_eq!(gone, []);
    }

    #[test]
    fn nobody_loses_a_result_to_a_user_who_has_more() {
        let mut index = index(10, 12);
        let (one, two) = (ResultOwner::person(1), ResultOwner::person(2));
        keep(&mut index, &one, 1, 4);
        let mut gone = Vec::new();
        let refused = index.reserve(&two, 9 * BLOCK, &mut gone);
        assert!(matches!(refused, Err(NotStored::Busy)));
        keep(&mut index, &two, 2, 5);
        assert_eq!(keep(&mut index, &two, 3, 5), [handle(2)], "their own goes");
        // So it is for space on the disk.
        assert!(!index.give_way(9 * BLOCK + 1, Some(2), &mut gone));
        assert_eq!(gone, [], "nothing goes for what finds no room anyway");
        assert!(index.give_way(1, Some(1), &mut gone) && gone == [handle(3)]);
        index.reserve(&two, 6 * BLOCK, &mut gone).unwrap();
        assert!(
            !index.give_way(1, Some(2), &mut gone),
            "not for who writes more than the other has"
        );
        assert!(index.give_way(1, None, &mut gone), "but for the trail");
        assert_eq!((gone, index.counted().1), (vec![handle(3), handle(1)], 0));
    }

    #[test]
    fn a_day_is_over_for_each_in_its_turn() {
        let (mut index, owner, start) = (
            index(10, 10),
            ResultOwner::person(1),
            SystemTime::UNIX_EPOCH,
        );
        for (number, after) in [(1, 0), (2, 10), (3, 20)] {
            index.reserve(&owner, 1, &mut Vec::new()).unwrap();
            index.settle(
                &owner,
                handle(number),
                1,
                Some(start + Duration::from_secs(after)),
            );
        }
        let at = |seconds| start + KEPT_FOR + Duration::from_secs(seconds);
        assert!(index.find(&owner, handle(2), at(9)).is_some());
        assert!(
            index.find(&owner, handle(2), at(10)).is_none(),
            "not found before it is removed"
        );
        let mut gone = index.expire(at(10));
        gone.sort_by_key(|handle| handle.0);
        assert_eq!(gone, [handle(1), handle(2)]);
        assert_eq!((index.expire(at(11)), index.counted().1), (vec![], 1));
        assert_eq!(index.expire(start), [], "a clock that is set back");
    }

    #[test]
    fn who_is_gone_has_nothing_any_more() {
        let (mut index, one, two) = (index(10, 10), agent(1, "a"), agent(1, "b"));
        for number in 1..=3 {
            keep(&mut index, if number == 2 { &two } else { &one }, number, 1);
        }
        assert_eq!(index.forget(&one), [handle(1), handle(3)]);
        assert_eq!((index.forget(&one), index.counted().1), (vec![], 1));
    }
}
