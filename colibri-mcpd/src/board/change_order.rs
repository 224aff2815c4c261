//! The order of changes of one task: changes of different tasks are made side by side.

use std::collections::HashSet;

use parking_lot::{Condvar, Mutex};

/// A task, an agent's instance or a creator of tasks, for which one thing is done at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ChangeKey {
    Task(u64),
    Instance(String),
    Creator(u32),
}

/// The keys that somebody has now.
#[derive(Debug, Default)]
pub(super) struct ChangeOrder {
    taken: Mutex<HashSet<ChangeKey>>,
    freed: Condvar,
}

impl ChangeOrder {
    /// Waits until nobody has this key, and takes it.
    pub(super) fn take(&self, key: ChangeKey) -> TakenKey<'_> {
        let mut taken = self.taken.lock();
        while !taken.insert(key.clone()) {
            self.freed.wait(&mut taken);
        }
        TakenKey { order: self, key }
    }
}

/// A key that its holder gives back at its end.
#[derive(Debug)]
pub(super) struct TakenKey<'a> {
    order: &'a ChangeOrder,
    pub(super) key: ChangeKey,
}

impl Drop for TakenKey<'_> {
    fn drop(&mut self) {
        self.order.taken.lock().remove(&self.key);
        self.order.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn one_at_a_time_has_a_key_and_others_go_on() {
        let (order, done) = (ChangeOrder::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let first = order.take(ChangeKey::Task(1));
            scope.spawn(|| {
                let _second = order.take(ChangeKey::Task(1));
                assert!(done.load(Ordering::SeqCst));
            });
            drop(order.take(ChangeKey::Task(2)));
            drop(order.take(ChangeKey::Instance("1".to_owned())));
            done.store(true, Ordering::SeqCst);
            drop(first);
        });
        assert!(order.taken.lock().is_empty());
    }
}
