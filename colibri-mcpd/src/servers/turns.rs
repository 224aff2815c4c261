//! Whose turn it is in a process that may ask: a legacy server's request names no call, so only one call of those whose
//! client can be asked is in flight in a process, and the next gets a process of its own, as long as there may be more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::state::ProcessKey;

/// The turns of one server.
#[derive(Default)]
pub(super) struct Turns {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    taken: BTreeSet<ProcessKey>,
    /// Who waits, by the first of the processes that would do, in the order in which they came.
    waiting: BTreeMap<ProcessKey, VecDeque<oneshot::Sender<Turn>>>,
}

/// A call's turn. Dropping it is the end of it.
pub(super) struct Turn {
    /// The process.
    pub key: ProcessKey,
    first: ProcessKey,
    turns: Arc<Turns>,
}

impl Turns {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn in this process, or in one of those beside it that make `most` with it.
    ///
    /// # Errors
    /// It comes when another is over.
    pub(super) fn take(self: &Arc<Self>, first: ProcessKey, most: usize) -> Result<Turn, oneshot::Receiver<Turn>> {
        let mut inner = self.inner();
        let free = (0..most.max(1))
            .map(|number| first.beside(number))
            .find(|key| !inner.taken.contains(key));
        match free {
            Some(key) => {
                inner.taken.insert(key);
                Ok(self.turn(key, first))
            }
            None => {
                let (sender, receiver) = oneshot::channel();
                inner.waiting.entry(first).or_default().push_back(sender);
                Err(receiver)
            }
        }
    }

    fn turn(self: &Arc<Self>, key: ProcessKey, first: ProcessKey) -> Turn {
        Turn {
            key,
            first,
            turns: self.clone(),
        }
    }

    /// The next one in this process.
    fn next(&self, inner: &mut Inner, first: ProcessKey) -> Option<oneshot::Sender<Turn>> {
        let waiting = inner.waiting.get_mut(&first)?;
        // Who does not wait any more has no turn.
        let next = std::iter::from_fn(|| waiting.pop_front()).find(|sender| !sender.is_closed());
        if waiting.is_empty() {
            inner.waiting.remove(&first);
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.turns.inner();
        let next = self.turns.next(&mut inner, self.first);
        if next.is_none() {
            inner.taken.remove(&self.key);
        }
        drop(inner);
        if let Some(next) = next {
            // One that just gave up drops it, and it goes to the next.
            let _ = next.send(self.turns.turn(self.key, self.first));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: ProcessKey = ProcessKey::Uid(1);

    #[test]
    fn there_is_one_call_in_a_process_and_then_a_second_process() {
        let turns: Arc<Turns> = Arc::default();
        let all: Vec<_> = (0..4).map(|_| turns.take(FIRST, 4).ok().unwrap()).collect();
        let keys: Vec<_> = all.iter().map(|turn| turn.key).collect();
        assert_eq!(keys[0], FIRST);
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 4);
        assert!(keys.iter().all(|key| key.uid() == Some(1)));
        // Others have theirs.
        assert!(turns.take(ProcessKey::Uid(2), 1).is_ok());
        assert!(turns.take(ProcessKey::Connection(1, 7), 1).is_ok());
        assert!(turns.take(FIRST, 4).is_err());
        drop(all);
        assert_eq!(turns.take(FIRST, 4).ok().unwrap().key, FIRST);
        assert!(turns.inner().taken.is_empty());
    }

    #[test]
    fn who_came_first_has_the_next_turn() {
        let turns: Arc<Turns> = Arc::default();
        let has = turns.take(FIRST, 1).ok().unwrap();
        let mut waiting: Vec<_> = (0..3).map(|_| turns.take(FIRST, 1).err().unwrap()).collect();
        drop(waiting.remove(0));
        drop(has);
        let first = waiting[0].try_recv().unwrap();
        assert!(waiting[1].try_recv().is_err());
        drop(first);
        assert_eq!(waiting[1].try_recv().unwrap().key, FIRST);
        let inner = turns.inner();
        assert!(inner.taken.is_empty() && inner.waiting.is_empty());
    }

    #[test]
    fn a_turn_that_nobody_takes_goes_to_the_next() {
        let turns: Arc<Turns> = Arc::default();
        let has = turns.take(FIRST, 1).ok().unwrap();
        let gone = turns.take(FIRST, 1).err().unwrap();
        let mut next = turns.take(FIRST, 1).err().unwrap();
        drop(has);
        // It was given its turn, and went without looking.
        drop(gone);
        assert_eq!(next.try_recv().unwrap().key, FIRST);
    }
}
