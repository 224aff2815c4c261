//! Wakes other hosts after changes of this one.

use std::sync::Weak;
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::time::{sleep, timeout};

use super::state::FleetState;

/// The channel on which hosts tell each other that there is something to take.
pub(super) const CHANNEL: &str = "colibri_board";
/// The least time between two wakes.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest time that one takes.
const LONGEST: Duration = Duration::from_secs(6);

/// Wakes the others after changes, for as long as there is a board. Outside of their transactions:
/// PostgreSQL commits one transaction that notifies after the other, each with its write to the
/// disk. A wake that is lost is made good by the others' look every 30 s.
pub(super) async fn send(fleet: Weak<FleetState>, connection: Pool) {
    while let Some(state) = fleet.upgrade() {
        let name = state.host.name.clone();
        let has_changed = timeout(LONGEST, state.wakes.notified()).await.is_ok();
        drop(state);
        if !has_changed {
            continue;
        }
        let wake = async {
            let client = connection.get().await.ok()?;
            let statement = client
                .prepare_cached("SELECT pg_notify($1, $2)")
                .await
                .ok()?;
            client.execute(&statement, &[&CHANNEL, &name]).await.ok()
        };
        // The renewal of the lease says what is wrong with the database.
        let _ = timeout(LONGEST, wake).await;
        sleep(PAUSE).await;
    }
}
