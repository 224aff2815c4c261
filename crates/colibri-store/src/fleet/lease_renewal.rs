//! Keeps this host's lease, and hears of what other hosts change.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::{info, warn};

use super::fault::BoardFault;
use super::state::FleetState;
use super::wakes::CHANNEL;
use super::{address, schema};
use crate::lease::elapsed;

/// The time for which a lease is given, by the database's clock.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// Here it is over so much earlier: what is on its way then is no longer on its way when others
/// take over.
const MARGIN: Duration = Duration::from_secs(3);
/// The interval of its renewals, and of tries to reach a database that is away.
const EVERY: Duration = Duration::from_secs(3);
/// Claims are as much higher after a restore: none of before is in force, nor ever will be.
pub(super) const CLAIMS: i64 = 1_000_000;

/// Keeps the lease for as long as there is a board.
pub(super) async fn keep(fleet: Weak<FleetState>) {
    let mut said = String::new();
    let mut beat = 0;
    loop {
        let Some(fleet) = fleet.upgrade() else { return };
        let Err(fault) = session(&fleet, &mut beat).await else {
            return;
        };
        let why = fault.to_string();
        *fleet.away.lock() = Some(why.clone());
        // Said once: it is tried again and again.
        if why != said {
            warn!("the board {} is not used: {why}", fleet.address.shown);
            said = why;
        }
        drop(fleet);
        sleep(EVERY / 3).await;
    }
}

/// Uses the database for as long as it answers. `beat` is this host's last one, also of sessions
/// before.
///
/// # Errors
/// The reason for which it is not used any more.
async fn session(fleet: &Arc<FleetState>, beat: &mut i64) -> Result<(), BoardFault> {
    let client = timeout(address::CONNECT, connect(fleet)).await;
    let client = client.map_err(|_| {
        BoardFault::from("the database did not answer: see that it runs and is reached from here")
    })??;
    within(schema::prepare(&client, &fleet.address.role)).await?;
    let (epoch, board) = within(epoch(&client)).await?;
    *fleet.board.lock() = board;
    let now = (within(enroll(&client, fleet)).await?, epoch);
    within(follow(&client, fleet, (beat, epoch), now)).await?;
    let listen = format!("LISTEN {CHANNEL}");
    within(async { Ok(client.batch_execute(&listen).await?) }).await?;
    *fleet.away.lock() = None;
    info!(
        board = fleet.address.shown,
        host = fleet.host.name,
        "the board is there"
    );
    fleet.woken.notify_one();
    let mut reported = String::new();
    loop {
        sleep(EVERY).await;
        let now = within(renew(&client, fleet, &mut reported)).await?;
        within(follow(&client, fleet, (beat, epoch), now)).await?;
    }
}

/// Compares the beat and the epoch that the board has now with the last ones that are known.
///
/// # Errors
/// The board was restored. The first host that sees it raises the epoch.
async fn follow(
    client: &Client,
    fleet: &FleetState,
    (beat, epoch): (&mut i64, i64),
    now: (i64, i64),
) -> Result<(), BoardFault> {
    // It may be more than one higher: a renewal that was no longer waited for arrived late.
    let was_set_back = now.0 <= *beat;
    *beat = now.0;
    if was_set_back && now.1 == epoch {
        raise_epoch(client, epoch, "").await?;
    }
    if was_set_back || now.1 != epoch {
        fleet.lease.lose();
        return Err("it was restored to what it was before: all claims are over".into());
    }
    Ok(())
}

/// Gives up a lease whose time is over, whatever the database is waited for meanwhile.
pub(super) async fn watch(fleet: Weak<FleetState>) {
    while let Some(fleet) = fleet.upgrade() {
        if fleet.lease.has_lapsed() {
            warn!(
                "this host has lost its lease: its agents end, and it takes no tasks until the board is back"
            );
            fleet.lease.lose();
        }
        drop(fleet);
        sleep(EVERY / 6).await;
    }
}

async fn within<T>(work: impl Future<Output = Result<T, BoardFault>>) -> Result<T, BoardFault> {
    let done = timeout(address::CONNECT, work).await;
    done.map_err(|_| BoardFault::from("the database does not answer any more"))?
}

async fn connect(fleet: &Arc<FleetState>) -> Result<Client, BoardFault> {
    let config = &fleet.address.config;
    match &fleet.address.tls {
        None => open(config, NoTls, fleet).await,
        Some(tls) => open(config, MakeRustlsConnect::new(tls.clone()), fleet).await,
    }
}

async fn open<T>(config: &Config, tls: T, fleet: &Arc<FleetState>) -> Result<Client, BoardFault>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, mut connection) = config.connect(tls).await?;
    let fleet = Arc::downgrade(fleet);
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let (AsyncMessage::Notification(change), Some(fleet)) = (message, fleet.upgrade())
                && change.payload() != fleet.host.name
            {
                fleet.woken.notify_one();
            }
        }
    });
    Ok(client)
}

/// The board's epoch, raised if this is another cluster, timeline or database than the one that it
/// was made in; and its name.
async fn epoch(client: &Client) -> Result<(i64, String), BoardFault> {
    let read = "SELECT epoch, incarnation, name, (SELECT system_identifier::TEXT FROM pg_control_system()) || '/' ||
        (SELECT timeline_id::TEXT FROM pg_control_checkpoint()) || '/' ||
        (SELECT oid::TEXT FROM pg_database WHERE datname = current_database()) FROM board";
    let row = client.query_opt(read, &[]).await?;
    let row =
        row.ok_or("its schema is not whole (board has no row): restore it whole from a backup")?;
    let (epoch, then, board, now): (i64, String, String, String) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    if then == now {
        return Ok((epoch, board));
    }
    if then.is_empty() {
        let note = "UPDATE board SET incarnation = $1 WHERE incarnation = ''";
        client.execute(note, &[&now]).await?;
        return Ok((epoch, board));
    }
    raise_epoch(client, epoch, &now).await?;
    let row = client.query_one("SELECT epoch FROM board", &[]).await?;
    Ok((row.get(0), board))
}

/// Ends every claim, unless another host just did; notes the incarnation where one is said. What is
/// signed of a task stays: its claim goes by its last digits there. What somebody has, or is kept
/// for an instance, has lapsed by this, and the next look of a host takes it back.
async fn raise_epoch(client: &Client, epoch: i64, incarnation: &str) -> Result<(), BoardFault> {
    let raise = "WITH raised AS (UPDATE board SET epoch = epoch + 1,
            incarnation = CASE WHEN $2 = '' THEN incarnation ELSE $2 END WHERE epoch = $1 RETURNING epoch)
        UPDATE tasks SET claim = claim + $3, lease_until = 0
            WHERE status IN ('intake', 'queued', 'claimed', 'started') AND EXISTS (SELECT 1 FROM raised)";
    let done = client
        .execute(raise, &[&epoch, &incarnation, &CLAIMS])
        .await;
    let changed = done?;
    warn!(
        tasks = changed,
        "the board was restored: its epoch is raised, and every claim is over"
    );
    Ok(())
}

/// Takes the lease of this host's name, or goes on with it. Returns its beat.
async fn enroll(client: &Client, fleet: &FleetState) -> Result<i64, BoardFault> {
    let (name, key, run) = (
        &fleet.host.name,
        &fleet.host.signer.verifier().to_string(),
        &fleet.run,
    );
    let insert = "INSERT INTO hosts (name, key, run, version) VALUES ($1, $2, '', $3) ON CONFLICT DO NOTHING";
    let version = env!("CARGO_PKG_VERSION");
    client.execute(insert, &[name, key, &version]).await?;
    // The one that has it now goes on with it; else it must be over.
    if fleet.lease.has_lapsed() {
        fleet.lease.lose();
    }
    let sent = elapsed();
    let take = "UPDATE hosts SET run = $3, version = $4, beat = beat + 1, lease_until = now_ms() + $5
        WHERE name = $1 AND key = $2 AND (run = $3 OR lease_until <= now_ms()) RETURNING beat, now_ms()";
    let length = LEASE.as_millis() as i64;
    let row = client
        .query_opt(take, &[name, key, run, &version, &length])
        .await;
    if let Some(row) = row? {
        fleet
            .lease
            .renew(sent, LEASE - MARGIN, row.get::<_, i64>(1).unsigned_abs());
        return Ok(row.get(0));
    }
    let who = "SELECT name, key, lease_until - now_ms() FROM hosts WHERE name = $1 OR key = $2 ORDER BY name = $1 DESC";
    let who = format!("{who} LIMIT 1");
    let row = client.query_opt(&who, &[name, key]).await?;
    let row = row.ok_or("this host's row was removed at the same moment")?;
    let (its_name, its_key, left): (String, String, i64) = (row.get(0), row.get(1), row.get(2));
    Err(BoardFault::from(
        match (its_name == *name, its_key == *key) {
            (true, true) => format!(
                "another daemon has the lease of the host {name}, for {} s more: one that was just killed is waited for; a copy \
             of a state directory needs a key and a --host of its own",
                left / 1000
            ),
            (true, false) => format!(
                "the name {name} is another key's ({its_key}): choose another with --host, or, if that host is gone for good, \
             DELETE FROM colibri.hosts WHERE name = '{name}'"
            ),
            (false, _) => format!(
                "this host's key is the host {its_name}'s already: start it with --host {its_name}, or, if its state directory \
             is a copy, remove trail.key there"
            ),
        },
    ))
}

/// Renews the lease, and says what this host has where that is not what it `reported`. Returns its
/// beat, and the board's epoch.
async fn renew(
    client: &Client,
    fleet: &FleetState,
    reported: &mut String,
) -> Result<(i64, i64), BoardFault> {
    let places = fleet.places.lock().clone();
    let sent = elapsed();
    let renew = "UPDATE hosts SET beat = beat + 1, lease_until = now_ms() + $3, agents = $4, free_places = $5,
            instances = COALESCE($6, instances)
        WHERE name = $1 AND run = $2 AND lease_until > now_ms()
        RETURNING beat, now_ms(), (SELECT epoch FROM board), EXISTS (SELECT 1 FROM tasks
            WHERE status IN ('claimed', 'started') AND claimed_session IS NOT NULL AND NOT EXISTS (SELECT 1 FROM hosts
                WHERE name = split_part(claimed_session, ':', 1) AND lease_until > now_ms())),
            EXISTS (SELECT 1 FROM hosts WHERE name <> $1)";
    let length = LEASE.as_millis() as i64;
    let (host, free) = (&fleet.host, i64::from(places.free));
    let instances = Some(&places.instances).filter(|instances| **instances != *reported);
    let values: [&(dyn ToSql + Sync); 6] = [
        &host.name,
        &fleet.run,
        &length,
        &places.agents,
        &free,
        &instances,
    ];
    let row = client.query_opt(renew, &values).await?;
    let Some(row) = row else {
        fleet.lease.lose();
        return Err("this host's lease is over: it was not renewed in time".into());
    };
    fleet
        .lease
        .renew(sent, LEASE - MARGIN, row.get::<_, i64>(1).unsigned_abs());
    reported.clone_from(&places.instances);
    fleet.has_others.store(row.get(4), Ordering::Relaxed);
    // A host that is gone has left something.
    if row.get(3) {
        fleet.woken.notify_one();
    }
    Ok((row.get(0), row.get(2)))
}
