//! Quotas: the part of the common resources that one user may take, so that none can take them from
//! the others. Operators have no share: what is kept back for them is how a host is mended that
//! others keep busy.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::usage::{CostRule, DailyUsage, Terms, UserBudget};
use colibri_api::{CostDay, CostMode};

/// The quota of every user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserQuota {
    /// Connections of all users.
    pub clients: usize,
    /// Of these, for operators alone.
    pub kept_back: usize,
    /// Connections of one user.
    pub clients_per_user: usize,
    /// Bytes of trail that one user's calls may cause in a second.
    pub trail_per_user: u64,
    /// Starts of jailed servers that one user's calls may cause in a minute.
    pub starts_per_user: u32,
    /// Processes of one jailed server that are one user's.
    pub processes_per_user: usize,
    /// The cost mode of whoever nothing nearer says one for; `None`: none acts.
    pub cost_mode: Option<CostMode>,
}

/// Connections of one user, or of one agent, that are told at one time that there is no place for
/// them.
const MAX_TURNED_AWAY: usize = 16;

impl UserQuota {
    /// Connections that operators alone may have.
    fn for_operators(&self) -> usize {
        self.kept_back.min(self.clients / 2)
    }

    /// Connections of the rest that only users who have none may have: one in sixteen.
    fn for_newcomers(&self) -> usize {
        self.clients / 16
    }

    /// No limits at all.
    pub const NONE: UserQuota = UserQuota {
        clients: usize::MAX,
        kept_back: 0,
        clients_per_user: usize::MAX,
        trail_per_user: 0,
        starts_per_user: 0,
        processes_per_user: usize::MAX,
        cost_mode: None,
    };
}

/// The reason for which a connection is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// There are as many as there may be.
    #[error("{0} clients are connected already (limits.clients)")]
    All(usize),
    /// All ordinary places are taken; the rest is for operators.
    #[error(
        "{0} clients are connected already, and the last {1} places are for operators (limits.clients, limits.clients_for_operators)"
    )]
    KeptBack(usize, usize),
    /// The rest is for users who have none.
    #[error(
        "{0} clients are connected already, and the last {1} places are for users who have none (limits.clients)"
    )]
    Newcomers(usize, usize),
    /// The user has as many as one user may have.
    #[error("this user has {0} clients connected already (limits.clients_per_user)")]
    User(usize),
    /// The agent socket has as many as one may have.
    #[error("this agent's door has {0} connections already, which is the most that one takes")]
    Door(usize),
    /// All agent sockets have as many as they may have together.
    #[error("agents have {0} connections already, and what is left is for people (limits.clients)")]
    Doors(usize),
}

impl Full {
    /// The key of the limit in `limits` of the client policy; `None`: it is none of them.
    pub fn limit(self) -> Option<&'static str> {
        match self {
            Full::All(_) | Full::KeptBack(..) | Full::Newcomers(..) | Full::Doors(_) => {
                Some("clients")
            }
            Full::User(_) => Some("clients_per_user"),
            Full::Door(_) => None,
        }
    }
}

/// The usage of all users.
#[derive(Debug)]
pub struct UserQuotas {
    limits: UserQuota,
    clients: AtomicUsize,
    /// Those of them that came through agent sockets.
    agents: AtomicUsize,
    /// The usage of each user, for as long as the daemon runs: a user who comes back finds it
    /// again.
    users: Mutex<HashMap<u32, Arc<UserUsage>>>,
    /// Serialises the storing of usage.
    keeping: Mutex<()>,
}

/// The usage of one user.
#[derive(Debug)]
pub struct UserUsage {
    /// The person's for whom the agent runs whose share it is; `None`: it is a person's.
    person: Option<Arc<UserUsage>>,
    clients: AtomicUsize,
    /// Connections that get no place, and are told so.
    turned_away: AtomicUsize,
    trail: Flow,
    starts: Flow,
    spending: UserBudget,
    measuring: Mutex<()>,
}

/// A place for a connection; given back when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    shares: Arc<UserQuotas>,
    share: Arc<UserUsage>,
}

impl UserQuotas {
    /// Nothing taken yet.
    pub fn new(limits: UserQuota) -> UserQuotas {
        UserQuotas {
            limits,
            clients: AtomicUsize::new(0),
            agents: AtomicUsize::new(0),
            users: Mutex::default(),
            keeping: Mutex::default(),
        }
    }

    /// The limits.
    pub fn limits(&self) -> &UserQuota {
        &self.limits
    }

    /// The usage of a user.
    pub fn of(&self, uid: u32) -> Arc<UserUsage> {
        self.users
            .lock()
            .entry(uid)
            .or_insert_with(|| self.new_share(None))
            .clone()
    }

    /// A quota like a user's for an agent that runs for them, which takes nothing from the user's
    /// own.
    pub fn of_agent(&self, person: u32) -> Arc<UserUsage> {
        self.new_share(Some(self.of(person)))
    }

    fn new_share(&self, person: Option<Arc<UserUsage>>) -> Arc<UserUsage> {
        Arc::new(UserUsage {
            person,
            clients: AtomicUsize::new(0),
            turned_away: AtomicUsize::new(0),
            // Four seconds' worth of trail at once, half a minute's worth of starts.
            trail: Flow::new(self.limits.trail_per_user, 1_000, 4_000),
            starts: Flow::new(self.limits.starts_per_user.into(), 60_000, 30_000),
            spending: UserBudget::new(self.limits.cost_mode),
            measuring: Mutex::default(),
        })
    }

    /// Restores the users' usage of today and their cost modes from the store.
    pub fn recall(&self, kept: impl IntoIterator<Item = (u32, DailyUsage)>) {
        for (uid, spent) in kept {
            self.of(uid).spending.recall(spent);
        }
    }

    /// Has `keep` keep what is not kept, if there is anything: one after the other, so that none
    /// keeps what is older than what another has kept.
    ///
    /// # Errors
    /// Those of `keep`, and then it is to be kept still.
    pub fn keep<E>(
        &self,
        keep: impl FnOnce(&[(u32, DailyUsage)]) -> Result<(), E>,
    ) -> Result<(), E> {
        let _alone = self.keeping.lock();
        let unkept: Vec<_> = (self.users.lock().iter())
            .filter_map(|(uid, share)| Some((*uid, share.spending.unkept()?)))
            .collect();
        if !unkept.is_empty() {
            keep(&unkept)?;
        }
        for (uid, spent) in unkept {
            self.of(uid).spending.is_kept(spent);
        }
        Ok(())
    }

    /// The users with usage on this day, those who had most first.
    pub fn spent_on(&self, day: CostDay) -> Vec<(u32, DailyUsage)> {
        let users = self.users.lock();
        let all = users
            .iter()
            .map(|(uid, share)| (*uid, share.spending.on(day)));
        let mut some: Vec<_> = all.filter(|(_, spent)| spent.bytes > 0).collect();
        some.sort_by_key(|(uid, spent)| (std::cmp::Reverse(spent.bytes), *uid));
        some
    }

    /// A place for a connection to an agent socket, which takes so many. All agent sockets leave
    /// half of the places to people.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn admit_agent(
        self: &Arc<UserQuotas>,
        share: &Arc<UserUsage>,
        most: usize,
    ) -> Result<ConnectionPermit, Full> {
        let users = self.users.lock();
        let all = self.clients.load(Ordering::Relaxed);
        let clients = self.limits.clients;
        let (operators, newcomers) = (self.limits.for_operators(), self.limits.for_newcomers());
        if all >= clients - operators {
            return Err(Full::KeptBack(all, operators));
        }
        if all >= clients - operators - newcomers {
            return Err(Full::Newcomers(all, newcomers));
        }
        if share.clients.load(Ordering::Relaxed) >= most {
            return Err(Full::Door(most));
        }
        let agents = self.agents.load(Ordering::Relaxed);
        if agents >= (clients / 2).max(1) {
            return Err(Full::Doors(agents));
        }
        let place = self.place(share.clone());
        drop(users);
        Ok(place)
    }

    fn place(self: &Arc<UserQuotas>, share: Arc<UserUsage>) -> ConnectionPermit {
        self.clients.fetch_add(1, Ordering::Relaxed);
        self.agents
            .fetch_add(share.person.is_some().into(), Ordering::Relaxed);
        share.clients.fetch_add(1, Ordering::Relaxed);
        let shares = self.clone();
        ConnectionPermit { shares, share }
    }

    /// A place for a connection of a user.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn admit(
        self: &Arc<UserQuotas>,
        uid: u32,
        is_operator: bool,
    ) -> Result<ConnectionPermit, Full> {
        let share = self.of(uid);
        let users = self.users.lock();
        // Counted up under the lock alone, so what is seen is what is.
        let all = self.clients.load(Ordering::Relaxed);
        let UserQuota {
            clients,
            clients_per_user,
            ..
        } = self.limits;
        if all >= clients {
            return Err(Full::All(clients));
        }
        if !is_operator {
            let (operators, newcomers) = (self.limits.for_operators(), self.limits.for_newcomers());
            let own = share.clients.load(Ordering::Relaxed);
            if all >= clients - operators {
                return Err(Full::KeptBack(all, operators));
            }
            if own >= clients_per_user {
                return Err(Full::User(clients_per_user));
            }
            if own > 0 && all >= clients - operators - newcomers {
                return Err(Full::Newcomers(all, newcomers));
            }
        }
        let place = self.place(share);
        drop(users);
        Ok(place)
    }
}

/// A connection that gets no place, for as long as it is told so.
#[derive(Debug)]
pub struct TurnedAway(Arc<UserUsage>);

impl Drop for TurnedAway {
    fn drop(&mut self) {
        self.0.turned_away.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.share.clients.fetch_sub(1, Ordering::Relaxed);
        self.shares
            .agents
            .fetch_sub(self.share.person.is_some().into(), Ordering::Relaxed);
        self.shares.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

impl UserUsage {
    /// One more connection without a place is told so; `None`: so many of this user's are that
    /// further ones are only closed.
    pub fn turn_away(self: &Arc<UserUsage>) -> Option<TurnedAway> {
        let one = |now: usize| (now < MAX_TURNED_AWAY).then_some(now + 1);
        let counted = (self.turned_away).fetch_update(Ordering::Relaxed, Ordering::Relaxed, one);
        counted.is_ok().then(|| TurnedAway(self.clone()))
    }

    /// The cost mode under which it is spent, where policy says this of its user.
    pub fn terms(&self, rule: CostRule) -> Terms {
        match &self.person {
            Some(person) => person.terms_of_agent(rule),
            None => self.spending.terms(rule),
        }
    }

    /// The cost mode of agents that run for its user.
    pub fn terms_of_agent(&self, rule: CostRule) -> Terms {
        self.spending.terms(rule).of_agent()
    }

    /// Its user's usage on a day, and the mode that they chose.
    pub fn spent_on(&self, day: CostDay) -> DailyUsage {
        self.spending.on(day)
    }

    /// Adds an answer of so many bytes on a day, and returns how it stood before it.
    pub fn spend(&self, day: CostDay, bytes: u64) -> DailyUsage {
        self.spending.add(day, bytes)
    }

    /// The bytes of a list that count on a day, on which all lists of its user count for so many at
    /// most.
    pub fn of_list(&self, day: CostDay, bytes: u64, most: u64) -> u64 {
        self.spending.of_list(day, bytes, most)
    }

    /// Locked between the look at the rest and the taking of it.
    pub fn alone(&self) -> MutexGuard<'_, ()> {
        self.measuring.lock()
    }

    /// The user chose this mode at a time, in milliseconds since the epoch; `None`: no longer any.
    pub fn choose(&self, mode: Option<CostMode>, at: u64) {
        self.spending.choose(mode, at);
    }

    /// Bytes of trail were written for the user.
    pub fn wrote_trail(&self, bytes: usize) {
        self.trail.take(bytes);
    }

    /// True if the user has filled the trail faster than one user may.
    pub fn trail_is_spent(&self) -> bool {
        self.trail.wait().is_some()
    }

    /// A start of a jailed server for the user; else how long it has to wait for its turn.
    ///
    /// # Errors
    /// How long until it is the user's turn.
    pub fn start(&self) -> Result<(), Duration> {
        match self.starts.wait() {
            None => {
                self.starts.take(1);
                Ok(())
            }
            Some(wait) => Err(wait),
        }
    }
}

/// So much in a time, and no more than that of another time at once. More may be taken than is
/// there: then nothing is until it has flowed back.
#[derive(Debug)]
struct Flow {
    /// In millionths.
    left: AtomicI64,
    /// Millionths a millisecond; 0 for no limit.
    rate: i64,
    /// The most that flows back at once.
    most: i64,
    /// The time of the last refill.
    filled: Mutex<Instant>,
}

/// The unit of the count, so that a few in a minute are not nothing in a millisecond.
const UNIT: i64 = 1_000_000;

impl Flow {
    /// So much in `time` milliseconds, and at once what flows in `burst` milliseconds.
    fn new(amount: u64, time: i64, burst: i64) -> Flow {
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        let rate = amount.saturating_mul(UNIT) / time;
        let most = rate.saturating_mul(burst);
        Flow {
            left: AtomicI64::new(most),
            rate,
            most,
            filled: Mutex::new(Instant::now()),
        }
    }

    fn take(&self, amount: usize) {
        // Far below, it takes days to flow back: there is no need to count on.
        if self.rate > 0 && self.left.load(Ordering::Relaxed) > i64::MIN / 4 {
            let amount = i64::try_from(amount)
                .unwrap_or(i64::MAX)
                .saturating_mul(UNIT);
            self.left
                .fetch_sub(amount.min(i64::MAX / 4), Ordering::Relaxed);
        }
    }

    /// The time until there is something left; `None`: there is.
    fn wait(&self) -> Option<Duration> {
        if self.rate == 0 || self.left.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let mut filled = self.filled.lock();
        let now = Instant::now();
        let passed = i64::try_from(now.duration_since(*filled).as_millis()).unwrap_or(i64::MAX);
        *filled += Duration::from_millis(passed.unsigned_abs());
        let flowed = passed.saturating_mul(self.rate).min(self.most);
        let left = self.left.fetch_add(flowed, Ordering::Relaxed) + flowed;
        (left <= 0).then(|| Duration::from_millis((-left / self.rate).unsigned_abs() + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: UserQuota = UserQuota {
        clients: 6,
        kept_back: 1,
        clients_per_user: 3,
        trail_per_user: 1_000,
        starts_per_user: 60,
        processes_per_user: 4,
        cost_mode: None,
    };

    #[test]
    fn one_user_takes_no_more_than_a_share_and_a_place_is_kept_for_operators() {
        let shares = Arc::new(UserQuotas::new(LIMITS));
        let mut places: Vec<_> = (0..3).map(|_| shares.admit(1, false).unwrap()).collect();
        assert_eq!(shares.admit(1, false).unwrap_err(), Full::User(3));
        places.extend((0..2).map(|_| shares.admit(2, false).unwrap()));
        assert_eq!(shares.admit(2, false).unwrap_err(), Full::KeptBack(5, 1));
        let last = shares.admit(1, true).unwrap();
        assert_eq!(shares.admit(0, true).unwrap_err(), Full::All(6));
        drop((last, places.remove(0)));
        shares.admit(1, false).unwrap();
        drop(places);
        assert_eq!(shares.clients.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_last_places_are_for_users_who_have_none() {
        let limits = UserQuota {
            clients: 1024,
            kept_back: 16,
            clients_per_user: 256,
            ..LIMITS
        };
        let shares = Arc::new(UserQuotas::new(limits));
        let mut places = Vec::new();
        // Four users take all that they get.
        for uid in 1..=4 {
            while let Ok(place) = shares.admit(uid, false) {
                places.push(place);
            }
        }
        assert_eq!(places.len(), 1024 - 16 - 64);
        assert_eq!(
            shares.admit(4, false).unwrap_err(),
            Full::Newcomers(944, 64)
        );
        let agent = shares.of_agent(5);
        assert_eq!(
            shares.admit_agent(&agent, 16).unwrap_err(),
            Full::Newcomers(944, 64)
        );
        places.extend((100..164).map(|uid| shares.admit(uid, false).unwrap()));
        assert_eq!(
            shares.admit(164, false).unwrap_err(),
            Full::KeptBack(1008, 16)
        );
    }

    #[test]
    fn agents_take_nothing_of_their_persons_share_and_leave_half_of_the_places() {
        let limits = UserQuota {
            clients: 8,
            ..LIMITS
        };
        let shares = Arc::new(UserQuotas::new(limits));
        let (one, other) = (shares.of_agent(1), shares.of_agent(1));
        let mut places: Vec<_> = (0..2)
            .map(|_| shares.admit_agent(&one, 2).unwrap())
            .collect();
        assert_eq!(shares.admit_agent(&one, 2).unwrap_err(), Full::Door(2));
        places.extend((0..2).map(|_| shares.admit_agent(&other, 3).unwrap()));
        assert_eq!(shares.admit_agent(&other, 3).unwrap_err(), Full::Doors(4));
        one.wrote_trail(1 << 20);
        assert!(one.trail_is_spent() && !other.trail_is_spent() && !shares.of(1).trail_is_spent());
        let people: Vec<_> = (0..3).map(|_| shares.admit(1, false).unwrap()).collect();
        drop(places.pop());
        places.push(shares.admit_agent(&other, 3).unwrap());
        drop(places.pop());
        // What is kept back is for operators, whoever else comes.
        let person = shares.admit(2, false).unwrap();
        assert_eq!(
            shares.admit_agent(&other, 3).unwrap_err(),
            Full::KeptBack(7, 1)
        );
        drop((people, person, places));
        assert_eq!(
            (
                shares.clients.load(Ordering::Relaxed),
                shares.agents.load(Ordering::Relaxed)
            ),
            (0, 0)
        );
    }

    #[test]
    fn one_user_who_is_turned_away_takes_no_turn_of_another() {
        let shares = UserQuotas::new(LIMITS);
        let told: Vec<_> = std::iter::from_fn(|| shares.of(1).turn_away())
            .take(100)
            .collect();
        assert_eq!(told.len(), MAX_TURNED_AWAY);
        assert!(shares.of(2).turn_away().is_some());
        drop(told);
        assert!(shares.of(1).turn_away().is_some());
    }

    #[test]
    fn who_serves_one_client_keeps_no_place_back() {
        let shares = Arc::new(UserQuotas::new(UserQuota {
            clients: 1,
            ..LIMITS
        }));
        let place = shares.admit(1, false).unwrap();
        assert_eq!(shares.admit(2, false).unwrap_err(), Full::All(1));
        drop(place);
        shares.admit(2, false).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_user_spends_flows_back_and_is_not_anothers() {
        let shares = UserQuotas::new(LIMITS);
        let (one, other) = (shares.of(1), shares.of(2));
        one.wrote_trail(3_900);
        assert!(!one.trail_is_spent());
        one.wrote_trail(2_100);
        assert!(one.trail_is_spent() && shares.of(1).trail_is_spent() && !other.trail_is_spent());
        tokio::time::advance(Duration::from_millis(1_990)).await;
        assert!(one.trail_is_spent());
        tokio::time::advance(Duration::from_millis(20)).await;
        assert!(!one.trail_is_spent());
        // However long nothing is taken, no more gathers than at the beginning.
        tokio::time::advance(Duration::from_secs(1_000)).await;
        one.wrote_trail(5_000);
        assert!(one.trail_is_spent());
    }

    #[tokio::test(start_paused = true)]
    async fn starts_wait_for_their_turn() {
        let share = UserQuotas::new(LIMITS).of(1);
        for _ in 0..30 {
            share.start().unwrap();
        }
        let wait = share.start().unwrap_err();
        assert!(wait <= Duration::from_millis(2), "{wait:?}");
        tokio::time::advance(Duration::from_millis(1_002)).await;
        share.start().unwrap();
    }

    #[test]
    fn without_limits_nothing_is_counted() {
        let share = UserQuotas::new(UserQuota::NONE).of(1);
        share.wrote_trail(usize::MAX);
        assert!(!share.trail_is_spent() && share.start().is_ok());
    }
}
