//! Slots for long work: one thing of a user at a time, and a few of all. A user's agents wait for
//! their person, and for each other, no longer than for one thing of each.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The slots of all users.
#[derive(Debug)]
pub struct UserSlots {
    /// Of each instance of an agent and of each person, and of each person with all of these.
    known: Mutex<HashMap<UserSlotKey, Weak<Semaphore>>>,
    all: Arc<Semaphore>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum UserSlotKey {
    Own(u32, Option<Arc<str>>),
    Person(u32),
}

/// A user's turn, as long as it is there.
#[derive(Debug)]
pub struct UserSlot {
    _held: [Option<OwnedSemaphorePermit>; 3],
}

impl UserSlots {
    /// Those of which so many users have one at once.
    pub fn new(at_once: usize) -> UserSlots {
        UserSlots {
            known: Mutex::default(),
            all: Arc::new(Semaphore::new(at_once)),
        }
    }

    /// Waits for the turn of a user, or of an agent's instance that runs for them: in the order of
    /// who came, and for others no longer than for one thing of each.
    pub async fn of(&self, uid: u32, session: Option<Arc<str>>) -> UserSlot {
        let (own, person) = (
            self.one(UserSlotKey::Own(uid, session)),
            self.one(UserSlotKey::Person(uid)),
        );
        // None of them is ever closed.
        UserSlot {
            _held: [
                own.acquire_owned().await.ok(),
                person.acquire_owned().await.ok(),
                self.all.clone().acquire_owned().await.ok(),
            ],
        }
    }

    fn one(&self, key: UserSlotKey) -> Arc<Semaphore> {
        let mut known = self.known.lock();
        if let Some(one) = known.get(&key).and_then(Weak::upgrade) {
            return one;
        }
        known.retain(|_, one| one.strong_count() > 0);
        let one = Arc::new(Semaphore::new(1));
        known.insert(key, Arc::downgrade(&one));
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_user_has_one_turn_and_others_do_not_wait_for_more_of_one() {
        let (turns, mut context) = (UserSlots::new(4), Context::from_waker(Waker::noop()));
        let Poll::Ready(first) = pin!(turns.of(1, None)).poll(&mut context) else {
            panic!("nobody else is there");
        };
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(turns.of(1, None))).collect();
        for one in &mut waiting {
            assert!(one.as_mut().poll(&mut context).is_pending());
        }
        let Poll::Ready(other) = pin!(turns.of(2, None)).poll(&mut context) else {
            panic!("another user waits for none of them");
        };
        drop(first);
        let Poll::Ready(second) = waiting[0].as_mut().poll(&mut context) else {
            panic!("the first who waits is the next");
        };
        assert!(waiting[1].as_mut().poll(&mut context).is_pending());
        let more: Vec<_> = (3..=4)
            .map(|uid| pin!(turns.of(uid, None)).poll(&mut context))
            .collect();
        assert!(more.iter().all(Poll::is_ready));
        assert!(
            pin!(turns.of(5, None)).poll(&mut context).is_pending(),
            "four have their turn"
        );
        drop((waiting, second, other, more));
        assert!(pin!(turns.of(6, None)).poll(&mut context).is_ready());
        assert_eq!(turns.known.lock().len(), 2, "who is gone is forgotten");
    }

    #[test]
    fn a_person_waits_for_one_thing_of_each_agent() {
        let (turns, mut context) = (UserSlots::new(4), Context::from_waker(Waker::noop()));
        let agent = |name: &str| turns.of(1, Some(Arc::from(name)));
        let Poll::Ready(first) = pin!(agent("a")).poll(&mut context) else {
            panic!("nobody else is there");
        };
        let mut flood: Vec<_> = (0..100).map(|_| Box::pin(agent("a"))).collect();
        assert!(
            flood
                .iter_mut()
                .all(|one| one.as_mut().poll(&mut context).is_pending())
        );
        let mut person = Box::pin(turns.of(1, None));
        assert!(person.as_mut().poll(&mut context).is_pending());
        drop(first);
        // The next of the agent is behind the person now.
        assert!(flood[0].as_mut().poll(&mut context).is_pending());
        assert!(person.as_mut().poll(&mut context).is_ready());
    }
}
