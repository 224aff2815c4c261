//! Usage of answers by each user, and the cost modes that users chose: read from the store at the
//! start, and written to it while the daemon runs.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::Daemon;
use colibri_policy::{Choice, DailyUsage, UserQuotas};
use colibri_store::{Database, StoreError, UserDay};

/// The interval at which it is stored. A daemon that is killed forgets what was spent since.
const OFTEN: Duration = Duration::from_secs(5);

/// Takes over what was kept.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn recall(store: &Database, shares: &UserQuotas) -> Result<(), StoreError> {
    let spent = |cost: &UserDay| DailyUsage {
        day: cost.day,
        bytes: cost.bytes,
        own: (cost.mode.is_some() || cost.chosen_at > 0).then_some(Choice {
            mode: cost.mode,
            at: cost.chosen_at,
            before: cost.before,
        }),
    };
    let costs = store.costs()?;
    shares.recall(costs.iter().map(|cost| (cost.uid, spent(cost))));
    Ok(())
}

impl Daemon {
    /// Keeps what is spent, for as long as the daemon runs.
    pub(crate) async fn keep_spending_always(self: &Arc<Daemon>) {
        loop {
            tokio::time::sleep(OFTEN).await;
            let daemon = self.clone();
            // The store waits for the disk: not on a thread that serves clients.
            let kept = tokio::task::spawn_blocking(move || daemon.keep_spending()).await;
            if let Ok(Err(error)) = kept {
                warn!("what users have spent could not be kept, and is tried again: {error}");
            }
        }
    }

    /// Keeps what is spent by now.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub(crate) fn keep_spending(&self) -> Result<(), StoreError> {
        self.host.shares().keep(|unkept| {
            let costs: Vec<_> = unkept
                .iter()
                .map(|(uid, spent)| cost(*uid, *spent))
                .collect();
            self.store.keep_costs(&costs)
        })
    }
}

fn cost(uid: u32, spent: DailyUsage) -> UserDay {
    UserDay {
        uid,
        mode: spent.own.and_then(|own| own.mode),
        chosen_at: spent.own.map_or(0, |own| own.at),
        before: spent.own.map_or(0, |own| own.before),
        day: spent.day,
        bytes: spent.bytes,
    }
}
