//! `clients.json`: which user may pass which gate, call which tool of which server, and act as an
//! operator.
//!
//! The most specific rule speaks: the user's own entry replaces what the groups would give, the
//! entries of all groups of the user are added up, and `others` is for whoever no entry names. So
//! that a person can be narrowed below their group, and so that being in one more group never takes
//! a right away that a deny rule does not take. A `deny` of any entry that speaks wins over every
//! grant.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use colibri_json::{Document, ValueCursor};
use colibri_registry::account_choices;
use colibri_registry::value::one_of;
use parking_lot::Mutex;

use super::agent_tools::AgentTools;
use super::file::{self, FileError};
use super::gates::{Caller, CallerGates, Gate, GateState, Gates};
use super::limits::{DaemonLimits, LimitPlaces};
use super::list_mode::{LIST_MODES, ListMode};
use super::persons;
use super::place::RulePlace;
use super::rule_scope::{RuleScope, find, scopes};
use super::rules::RuleVerdict;
use super::usage::CostRule;
use super::user_database::{SystemAccounts, UserDatabase};
use colibri_protocol::{Askable, Code, ElicitationKind, Failure, Feature};

/// The time for which an answer of the user database about a uid is believed: a look-up may go over
/// the network, and a person who was taken out of a group must lose it without a reload.
const GROUPS_KEPT: Duration = Duration::from_secs(30);

/// The most rights that are remembered at once; beyond it the memory starts anew.
const MAX_KEPT: usize = 1024;

const RULE_KEYS: &[&str] = &[
    "gates",
    "servers",
    "deny",
    "ask",
    "list",
    "operator",
    "self_approve",
    "cost",
    "person",
    "accounts",
];
/// Those that refusals name.
const PLACED_KEYS: [&str; 6] = ["gates", "servers", "ask", "operator", "cost", "accounts"];
/// The kinds of requests that servers may send to people.
const ASKS: [&str; 3] = ["elicitation", "sampling", "roots"];

/// The client policy: immutable; a reload makes a new one.
pub struct Clients {
    file: String,
    /// `None`: there is no file, and everybody who can open the socket gets the daemon's gates.
    rules: Option<ClientRules>,
    limits: DaemonLimits,
    limit_places: LimitPlaces,
    /// Notes for the operator that are no errors.
    notes: Vec<String>,
    /// The daemon's own user is the only one, and approves what waits: nobody else is there.
    alone: bool,
    accounts: Box<dyn UserDatabase>,
    kept: Memory<Arc<Rights>>,
    groups: Memory<Arc<[u32]>>,
}

/// Recent look-ups of callers, by uid and gid.
type Memory<T> = Mutex<BTreeMap<(u32, u32), (Instant, T)>>;

/// The facts of a caller, looked up again after [`GROUPS_KEPT`].
fn remembered<T: Clone>(memory: &Memory<T>, caller: &Caller, find: impl FnOnce() -> T) -> T {
    let key = (caller.uid, caller.gid);
    let now = Instant::now();
    if let Some((found_at, found)) = memory.lock().get(&key)
        && now.duration_since(*found_at) < GROUPS_KEPT
    {
        return found.clone();
    }
    let found = find();
    let mut memory = memory.lock();
    if memory.len() >= MAX_KEPT {
        memory.clear();
    }
    memory.insert(key, (now, found.clone()));
    found
}

#[derive(Default)]
struct ClientRules {
    users: BTreeMap<u32, Arc<Rule>>,
    groups: BTreeMap<u32, Arc<Rule>>,
    others: Option<Arc<Rule>>,
}

/// One entry of the file.
#[derive(Debug, Default)]
struct Rule {
    /// Its path in the file, such as `users.alice`.
    path: String,
    /// The places of [`PLACED_KEYS`].
    places: [RulePlace; PLACED_KEYS.len()],
    write: bool,
    external: bool,
    servers: Vec<RuleScope>,
    deny: Vec<RuleScope>,
    /// The kinds of requests that servers may send to the person; `None`: whatever their entries
    /// allow.
    ask: Option<Askable>,
    /// The listed tools; `None`: not said.
    list: Option<ListMode>,
    operator: bool,
    self_approve: bool,
    cost: CostRule,
    /// The name of a user on a board of many hosts.
    person: Option<String>,
    /// The accounts that are meant by the ids of entries, as their servers' ids.
    accounts: BTreeMap<String, String>,
}

/// The rights of one caller.
#[derive(Debug)]
pub struct Rights {
    /// The gates that policy opens; a call passes those that the daemon opens too.
    pub gates: Gates,
    /// True if the operator's methods answer.
    pub operator: bool,
    /// True if this operator may approve calls that their own uid made.
    pub self_approve: bool,
    /// The cost rule of this caller.
    pub cost: CostRule,
    /// The list mode for servers' tools.
    pub list: ListMode,
    file: String,
    /// No rule restricts this caller.
    unrestricted: bool,
    rules: Vec<Arc<Rule>>,
    /// Of all servers this one alone is there.
    only: Option<Arc<str>>,
    /// It is an agent that runs for this caller, and has no more than this.
    agent: Option<AgentTools>,
}

impl Clients {
    /// Reads the file at `path`. Without one, nobody is restricted.
    ///
    /// # Errors
    /// An unsafe or unreadable file, or wrong contents.
    pub fn read(path: &Path) -> Result<Clients, FileError> {
        let name = path.to_string_lossy().into_owned();
        match file::read(path, colibri_json::MAX_BYTES, false)? {
            Some(found) => Ok(Clients::parse(
                &found.content,
                &name,
                Box::new(SystemAccounts),
            )?),
            None => Ok(Clients::absent(path.to_owned())),
        }
    }

    /// The policy of a host without the file: everybody who can open the socket gets the daemon's
    /// gates, root and the daemon's own user are operators (the latter owns the state directory, so
    /// that refusing it would protect nothing), and nobody approves their own calls.
    pub fn absent(path: PathBuf) -> Clients {
        Clients::new(
            path.to_string_lossy().into_owned(),
            None,
            Vec::new(),
            Box::new(SystemAccounts),
        )
    }

    fn new(
        file: String,
        rules: Option<ClientRules>,
        notes: Vec<String>,
        accounts: Box<dyn UserDatabase>,
    ) -> Clients {
        Clients {
            limit_places: LimitPlaces::in_file_without(&file),
            file,
            rules,
            limits: DaemonLimits::default(),
            notes,
            alone: false,
            accounts,
            kept: Memory::default(),
            groups: Memory::default(),
        }
    }

    /// The same for a daemon that serves its own user alone, who approves calls that wait.
    pub fn alone(mut self) -> Clients {
        self.alone = true;
        self
    }

    /// Reads the contents of a file; `file` is the name that errors and rules give.
    ///
    /// # Errors
    /// The first thing that is wrong: whatever [`Document::parse`] refuses, an unknown key, a value
    /// of the wrong kind, two entries for one user or group.
    pub fn parse(
        bytes: &[u8],
        file: &str,
        accounts: Box<dyn UserDatabase>,
    ) -> Result<Clients, colibri_json::DocumentError> {
        let document = Document::parse(bytes, file)?;
        let root = document
            .root()
            .object(&["users", "groups", "others", "limits"])?;
        let mut notes = Vec::new();
        let mut entries = |key: &str, look_up: &dyn Fn(&str) -> Option<u32>| {
            let mut found = BTreeMap::new();
            let members = root.read(key, ValueCursor::members)?.unwrap_or_default();
            for member in members {
                let rule = Arc::new(rule(&member.value)?);
                // A name of digits alone is a number: otherwise an account called "0" could stand
                // for root.
                let id = if member.key.bytes().all(|byte| byte.is_ascii_digit()) {
                    match member.key.parse::<u32>() {
                        Ok(id) if id.to_string() == member.key => Some(id),
                        _ => {
                            return Err(member.key_error(
                                "a number must be from 0 to 4294967295, without leading zeros",
                            ));
                        }
                    }
                } else {
                    look_up(member.key)
                };
                let Some(id) = id else {
                    notes.push(format!(
                        "{file}: {}: there is no such name in the user database; the entry does nothing",
                        member.value.path()
                    ));
                    continue;
                };
                if found.insert(id, rule).is_some() {
                    return Err(member.key_error(format!("a second entry for id {id}; remove one")));
                }
            }
            Ok(found)
        };
        let users = entries("users", &|name| accounts.uid(name))?;
        let groups = entries("groups", &|name| accounts.gid(name))?;
        let others = root.read("others", rule)?.map(Arc::new);
        let places = |rule: &Arc<Rule>| (rule.person.clone(), rule.path.clone());
        let elsewhere = groups.values().chain(&others).map(places);
        persons::check(&document.root(), users.values().map(places), elsewhere)?;
        let rules = ClientRules {
            users,
            groups,
            others,
        };
        let limits = root.read("limits", DaemonLimits::read)?.unwrap_or_default();
        let mut clients = Clients::new(file.to_owned(), Some(rules), notes, accounts);
        clients.limits = limits;
        if let Some(places) = root.read("limits", LimitPlaces::read)? {
            clients.limit_places = places;
        }
        Ok(clients)
    }

    /// True if there is no file.
    pub fn is_absent(&self) -> bool {
        self.rules.is_none()
    }

    /// The daemon's limits.
    pub fn limits(&self) -> &DaemonLimits {
        &self.limits
    }

    /// The place of a limit by its key in `limits`. Where the file does not have the key, it says
    /// where it would be.
    pub fn limit_place(&self, key: &str) -> String {
        self.limit_places.of(key).to_string()
    }

    /// The persons on a board of many hosts, by uid, of users who are not just `user@host` there.
    pub fn persons(&self) -> HashMap<u32, String> {
        let users = self.rules.iter().flat_map(|rules| &rules.users);
        users
            .filter_map(|(uid, rule)| Some((*uid, rule.person.clone()?)))
            .collect()
    }

    /// Notes for the operator that are no errors, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The rights of this caller. Quick, except for one look-up in the user database per caller and
    /// half a minute.
    pub fn rights(&self, caller: &Caller) -> Arc<Rights> {
        remembered(&self.kept, caller, || Arc::new(self.judge(caller)))
    }

    /// True if the caller is an operator whatever the user database says: root, and where there are
    /// no rules the daemon's own user.
    pub fn operates_anyway(&self, caller: &Caller) -> bool {
        caller.uid == 0 || (self.rules.is_none() && caller.uid == nix::unistd::geteuid().as_raw())
    }

    /// The groups of this caller: those of the user database, and the one that they connected with.
    pub fn groups(&self, caller: &Caller) -> Arc<[u32]> {
        remembered(&self.groups, caller, || {
            let mut groups = self.accounts.groups(caller.uid);
            if !groups.contains(&caller.gid) {
                groups.push(caller.gid);
            }
            groups.into()
        })
    }

    /// The accounts that policy says and that are none of these servers, each in a sentence with
    /// its place.
    pub fn unknown_accounts<T>(&self, servers: &BTreeMap<String, T>) -> Vec<String> {
        let rules = self.rules.iter().flat_map(|rules| {
            let all = rules.users.values().chain(rules.groups.values());
            all.chain(&rules.others)
        });
        let unknown = rules.flat_map(|rule| {
            let accounts = rule
                .accounts
                .iter()
                .filter(|(_, server)| !servers.contains_key(*server));
            accounts.map(|(entry, server)| {
                let place = rule.place("accounts").below(entry);
                format!("{place}: the registry has no account {server}")
            })
        });
        unknown.collect()
    }

    /// The gid of a group, if there is one of this name.
    pub fn gid(&self, group: &str) -> Option<u32> {
        self.accounts.gid(group)
    }

    fn judge(&self, caller: &Caller) -> Rights {
        let root = caller.uid == 0;
        let all = |operator| Rights {
            gates: Gates::new(true, true),
            operator,
            self_approve: operator && self.alone,
            cost: CostRule::default(),
            list: ListMode::All,
            file: self.file.clone(),
            unrestricted: true,
            rules: Vec::new(),
            only: None,
            agent: None,
        };
        let nobody = ClientRules::default();
        let rules = match &self.rules {
            Some(rules) => rules,
            None => match self.operates_anyway(caller) {
                // Who can open the socket of a user's own daemon, by whatever mode of a directory,
                // is not the user.
                false if self.alone => &nobody,
                operator => return all(operator),
            },
        };
        let mut speaking = Vec::new();
        if let Some(own) = rules.users.get(&caller.uid) {
            speaking.push(own.clone());
        } else if !rules.groups.is_empty() {
            let groups = self.groups(caller);
            speaking.extend(
                rules
                    .groups
                    .iter()
                    .filter(|(gid, _)| groups.contains(gid))
                    .map(|(_, rule)| rule.clone()),
            );
        }
        if speaking.is_empty() {
            // Root could write the file; a rule for others is not meant for it.
            if root {
                return all(true);
            }
            speaking.extend(rules.others.clone());
        }
        let any = |of: fn(&Rule) -> bool| speaking.iter().any(|rule| of(rule));
        Rights {
            gates: Gates::new(any(|rule| rule.write), any(|rule| rule.external)),
            operator: root || any(|rule| rule.operator),
            self_approve: any(|rule| rule.self_approve),
            cost: (speaking.iter()).fold(CostRule::default(), |cost, rule| cost.or(rule.cost)),
            // As with rights: one group more never shows less.
            list: speaking
                .iter()
                .filter_map(|rule| rule.list)
                .max()
                .unwrap_or_default(),
            file: self.file.clone(),
            unrestricted: false,
            rules: speaking,
            only: None,
            agent: None,
        }
    }
}

impl Rights {
    /// The rule that keeps a gate closed for this caller; `None` where policy opens it.
    pub fn closes(&self, gate: Gate) -> Option<String> {
        (!self.gates.is_open(gate)).then(|| self.places("gates"))
    }

    /// The gates as they stand for this caller, of a daemon and of those that the connection has
    /// left.
    pub fn caller_gates(&self, daemon: Gates, connection: Gates) -> CallerGates {
        CallerGates {
            write: self.gate_state(Gate::Write, daemon, connection),
            external_call: self.gate_state(Gate::External, daemon, connection),
        }
    }

    /// The state of one gate for this caller.
    pub(crate) fn gate_state(&self, gate: Gate, daemon: Gates, connection: Gates) -> GateState {
        if !daemon.is_open(gate) {
            return daemon.closed();
        }
        if !connection.is_open(gate) {
            return GateState::Narrowed;
        }
        match self.closes(gate) {
            Some(rule) => GateState::Refused { rule },
            None => GateState::Open,
        }
    }

    /// The same for who sees this server alone: nothing of the others, and no operator's methods.
    pub fn narrowed(&self, only: &Arc<str>) -> Rights {
        Rights {
            only: Some(only.clone()),
            // Who sees one server has no tools of ours to find others with.
            list: ListMode::All,
            ..self.lessened()
        }
    }

    /// The same for an agent that runs for this caller: the narrower of the two, and no operator's
    /// methods.
    pub fn of_agent(&self, tools: &AgentTools) -> Rights {
        Rights {
            agent: Some(tools.clone()),
            ..self.lessened()
        }
    }

    /// The same for who is no operator, whoever it comes from.
    fn lessened(&self) -> Rights {
        Rights {
            gates: self.gates,
            operator: false,
            self_approve: false,
            cost: self.cost,
            list: self.list,
            file: self.file.clone(),
            unrestricted: self.unrestricted,
            rules: self.rules.clone(),
            only: self.only.clone(),
            agent: self.agent.clone(),
        }
    }

    /// True if they are an agent's. What it may not use is not there for it.
    pub fn is_agents(&self) -> bool {
        self.agent.is_some()
    }

    /// True if one server alone is there, under its own names.
    pub fn is_narrowed(&self) -> bool {
        self.only.is_some()
    }

    fn is_there(&self, server: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == server)
            && self
                .agent
                .as_ref()
                .is_none_or(|tools| tools.has_any(server))
    }

    fn agent_has(&self, server: &str, name: &str) -> bool {
        self.agent
            .as_ref()
            .is_none_or(|tools| tools.has(server, name))
    }

    /// True if this caller may call a tool, get a prompt or read a resource, by the server's id and
    /// its own name or URI.
    ///
    /// # Errors
    /// [`Code::PolicyDenied`] with the rule and the file.
    pub fn may(&self, server: &str, feature: Feature, name: &str) -> Result<(), Failure> {
        let denied = |rule: String, message: String| {
            Failure::new(Code::PolicyDenied, message)
                .of_server(server)
                .by_rule(rule)
                .advising("do not repeat the call; the operator can change the rule in that file")
        };
        let by_policy = |rule: String, why: &str| {
            let noun = feature.noun();
            let message = format!("policy does not allow this user this {noun}, by {rule}: {why}");
            denied(rule, message)
        };
        for rule in &self.rules {
            if let Some(found) = find(&rule.deny, server, feature, name) {
                let why = format!("{} is denied", found.pattern.as_str());
                return Err(by_policy(found.place.to_string(), &why));
            }
        }
        if let Some(agent) = &self.agent
            && let RuleVerdict::Deny { rule, .. } = agent.judge(server, name)
        {
            let (rule, noun) = (rule.to_string(), feature.noun());
            let message = format!("the entry of this agent does not allow this {noun}, by {rule}");
            return Err(denied(rule, message));
        }
        let grants = |rule: &Arc<Rule>| find(&rule.servers, server, feature, name).is_some();
        if self.is_there(server) && (self.unrestricted || self.rules.iter().any(grants)) {
            return Ok(());
        }
        Err(by_policy(self.places("servers"), "no rule grants it"))
    }

    /// True if servers may ask this caller for something.
    ///
    /// # Errors
    /// [`Code::PolicyDenied`] with the rule and the file.
    pub fn may_be_asked(&self, server: &str, ask: ElicitationKind) -> Result<(), Failure> {
        let lets = |rule: &Arc<Rule>| rule.ask.is_none_or(|askable| askable.can(ask));
        if self.unrestricted || self.rules.iter().any(lets) {
            return Ok(());
        }
        let rule = self.places("ask");
        let message = format!(
            "policy does not let servers ask this user for {}, by {rule}",
            ask.method()
        );
        Err(Failure::new(Code::PolicyDenied, message)
            .of_server(server)
            .by_rule(rule))
    }

    /// True if this caller gets to see something in lists: what policy does not allow is hidden,
    /// while a closed gate of the daemon is answered with what to set.
    pub fn sees(&self, server: &str, feature: Feature, name: &str) -> bool {
        self.is_there(server)
            && self.agent_has(server, name)
            && (self.unrestricted
                || (self.gates.is_open(Gate::External)
                    && !self
                        .rules
                        .iter()
                        .any(|rule| find(&rule.deny, server, feature, name).is_some())
                    && self
                        .rules
                        .iter()
                        .any(|rule| find(&rule.servers, server, feature, name).is_some())))
    }

    /// True if this caller gets to see a server at all.
    pub fn sees_any(&self, server: &str) -> bool {
        let grants = |rule: &Arc<Rule>| {
            rule.servers
                .iter()
                .any(|scope| scope.servers.matches(server))
        };
        self.is_there(server)
            && (self.unrestricted
                || (self.gates.is_open(Gate::External) && self.rules.iter().any(grants)))
    }

    /// The account that this caller means by the id of an entry, as its server's id: what the
    /// agent's entry says of it, else the only one that policy says. Two groups of a person may say
    /// two, and then neither is meant.
    pub fn account(&self, entry: &str) -> Option<&str> {
        let of_agent = self
            .agent
            .as_ref()
            .and_then(|agent| agent.accounts.get(entry));
        let mut of_rules = self
            .rules
            .iter()
            .filter_map(|rule| rule.accounts.get(entry));
        let first = of_agent.or_else(|| of_rules.next())?;
        (of_agent.is_some() || of_rules.all(|other| other == first)).then_some(first.as_str())
    }

    /// True if these say of accounts what the others say.
    pub fn means_accounts_of(&self, others: &Rights) -> bool {
        let said = self.rules.iter().map(|rule| &rule.accounts);
        said.eq(others.rules.iter().map(|rule| &rule.accounts))
    }

    /// The account of an entry that this caller means, of those (ids of servers) that it may see.
    ///
    /// # Errors
    /// [`Code::PolicyDenied`]: policy says none, or another one.
    pub fn account_among<'a>(&self, entry: &str, accounts: &[&'a str]) -> Result<&'a str, Failure> {
        let meant = self.account(entry);
        if let Some(account) = accounts.iter().find(|account| Some(**account) == meant) {
            return Ok(account);
        }
        let (list, place) = (accounts.join(", "), self.accounts_place(entry));
        let why = match meant {
            Some(meant) => {
                format!("policy says {meant}, which this user may not use or there is not")
            }
            None => "policy does not say which of them this user means".to_owned(),
        };
        let first = accounts.first().copied().unwrap_or(entry);
        let account = first.strip_prefix(entry).unwrap_or(first);
        let advice = format!(
            "name one of them in place of {entry}, as in {first}__TOOL; or the operator chooses by \"accounts\": \
             {{\"{entry}\": \"{}\"}} at that place",
            account.trim_start_matches('-')
        );
        let message = format!("{entry} has accounts ({list}), and {why}: {place}");
        Err(Failure::new(Code::PolicyDenied, message)
            .by_rule(place)
            .advising(advice))
    }

    /// Checks that this caller is an operator.
    ///
    /// # Errors
    /// [`Code::PolicyDenied`], for everybody else.
    pub fn check_operator(&self) -> Result<(), Failure> {
        if self.operator {
            return Ok(());
        }
        let file = &self.file;
        let why =
            format!("this method is for operators: root, and who has \"operator\": true in {file}");
        Err(Failure::new(Code::PolicyDenied, why)
            .by_rule(self.operator_place())
            .advising("ask an operator, or root, to do it"))
    }

    /// The place where the agent's entry or policy says which account of an entry this caller
    /// means.
    fn accounts_place(&self, entry: &str) -> String {
        match &self.agent {
            Some(agent) if agent.accounts.contains_key(entry) => agent.accounts_place().to_string(),
            _ => self.places("accounts"),
        }
    }

    /// The place where policy says who is an operator. An agent and a connection with one server
    /// are none, whatever the entry of their user says.
    fn operator_place(&self) -> String {
        match self.rules.is_empty() || self.is_agents() || self.is_narrowed() {
            true => format!("{}: operator", self.file),
            false => self.places("operator"),
        }
    }

    /// The place of this caller's cost rule.
    pub fn cost_place(&self) -> String {
        self.places("cost")
    }

    fn places(&self, key: &str) -> String {
        if self.rules.is_empty() {
            return format!(
                "{}: no entry names this user, and there is no \"others\"",
                self.file
            );
        }
        let places: Vec<String> = self
            .rules
            .iter()
            .map(|rule| rule.place(key).to_string())
            .collect();
        places.join(", ")
    }
}

impl Rule {
    /// The place of one of [`PLACED_KEYS`].
    fn place(&self, key: &str) -> &RulePlace {
        let index = PLACED_KEYS.iter().position(|placed| *placed == key);
        &self.places[index.unwrap_or_default()]
    }
}

fn rule(cursor: &ValueCursor<'_>) -> Result<Rule, colibri_json::DocumentError> {
    let keys = cursor.object(RULE_KEYS)?;
    let mut rule = Rule {
        path: cursor.path().to_owned(),
        places: PLACED_KEYS.map(|key| RulePlace::of_key(&keys, key)),
        ..Rule::default()
    };
    for gate in keys.read("gates", ValueCursor::array)?.unwrap_or_default() {
        match gate.text()? {
            "write" => rule.write = true,
            "external-call" => rule.external = true,
            _ => return Err(gate.error("must be write or external-call")),
        }
    }
    rule.servers = keys.read("servers", scopes)?.unwrap_or_default();
    rule.deny = keys.read("deny", scopes)?.unwrap_or_default();
    if let Some(asks) = keys.read("ask", ValueCursor::array)? {
        let mut words = Vec::new();
        for ask in asks {
            let word = ask.text()?;
            if !ASKS.contains(&word) {
                return Err(ask.error("must be elicitation, sampling or roots"));
            }
            words.push(word);
        }
        rule.ask = Some(Askable::named(words));
    }
    rule.list = keys.read("list", |mode| one_of(mode, &LIST_MODES))?;
    let truth = |key| {
        keys.read(key, ValueCursor::boolean)
            .map(Option::unwrap_or_default)
    };
    rule.operator = truth("operator")?;
    rule.self_approve = truth("self_approve")?;
    rule.cost = keys.read("cost", CostRule::read)?.unwrap_or_default();
    rule.person = keys.read("person", persons::name)?;
    rule.accounts = keys.read("accounts", account_choices)?.unwrap_or_default();
    if rule.self_approve && !rule.operator {
        return Err(cursor.error("self_approve goes with operator, which this entry does not have"));
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Some3;

    impl UserDatabase for Some3 {
        fn uid(&self, name: &str) -> Option<u32> {
            match name {
                "root" => Some(0),
                "alice" => Some(1001),
                "bob" => Some(1002),
                "carol" => Some(1003),
                _ => None,
            }
        }

        fn gid(&self, name: &str) -> Option<u32> {
            match name {
                "dev" => Some(50),
                "ops" => Some(51),
                _ => None,
            }
        }

        fn groups(&self, uid: u32) -> Vec<u32> {
            match uid {
                1002 => vec![50],
                1003 => vec![50, 51],
                _ => Vec::new(),
            }
        }
    }

    fn parse(text: &str) -> Result<Clients, colibri_json::DocumentError> {
        Clients::parse(text.as_bytes(), "clients.json", Box::new(Some3))
    }

    fn rights(clients: &Clients, uid: u32) -> Arc<Rights> {
        clients.rights(&Caller {
            uid,
            gid: uid,
            pid: None,
        })
    }

    /// As in docs/policy.md.
    const TWO_USERS: &str = r#"{
        "users": {
            "alice": { "gates": ["write", "external-call"], "servers": { "*": ["*"] }, "operator": true },
            "bob":   { "gates": ["external-call"], "servers": { "docs": ["search"] } } } }"#;

    #[test]
    fn an_account_is_what_policy_says_and_never_one_of_two() {
        let clients = parse(
            r#"{"users":{"alice":{"accounts":{"github":"work","mail":"a"}}},
                "groups":{"dev":{"accounts":{"github":"work"}},"ops":{"accounts":{"github":"home","git":"x-1"}}},
                "others":{"accounts":{"github":"other"}}}"#,
        )
        .unwrap();
        for (uid, entry, meant) in [
            (1001, "github", Some("github-work")),
            (1001, "mail", Some("mail-a")),
            (1001, "git", None),
            (1002, "github", Some("github-work")),
            (1003, "github", None),
            (1003, "git", Some("git-x-1")),
            (4242, "github", Some("github-other")),
            (0, "github", None),
        ] {
            assert_eq!(rights(&clients, uid).account(entry), meant, "{uid} {entry}");
        }
        let agent = AgentTools::default().with_accounts(
            BTreeMap::from([("git".to_owned(), "git-y".to_owned())]),
            RulePlace::outside_files("agents.a.accounts"),
        );
        let of_agent = rights(&clients, 1003).of_agent(&agent);
        assert_eq!(
            (of_agent.account("git"), of_agent.account("github")),
            (Some("git-y"), None)
        );
        assert_eq!(of_agent.accounts_place("git"), "agents.a.accounts");
        let refusal = rights(&clients, 1003)
            .account_among("github", &["github-home", "github-work"])
            .unwrap_err();
        assert!(
            refusal.rule.unwrap().contains(
                "clients.json:2: groups.dev.accounts, clients.json:2: groups.ops.accounts"
            )
        );
        let known = ["github-home", "github-work"];
        let meant = rights(&clients, 1001).account_among("github", &known);
        assert_eq!(meant, Ok("github-work"));
        let refusal = rights(&clients, 1001).account_among("github", &["github-home"]);
        assert!(
            refusal
                .unwrap_err()
                .message
                .contains("policy says github-work")
        );
        let servers = BTreeMap::from([("github-work", ()), ("mail-a", ()), ("git-x-1", ())]);
        let servers = servers
            .into_iter()
            .map(|(id, known)| (id.to_owned(), known))
            .collect();
        let unknown = clients.unknown_accounts(&servers);
        assert_eq!(unknown.len(), 2, "{unknown:?}");
        assert!(
            unknown[0]
                .contains("groups.ops.accounts.github: the registry has no account github-home")
        );
        for wrong in [
            r#"["work"]"#,
            r#"{"github":7}"#,
            r#"{"github":""}"#,
            r#"{"github":"-x"}"#,
            r#"{"github":"Work"}"#,
            r#"{"git*":"work"}"#,
            r#"{"github":{"secret":"x"}}"#,
        ] {
            assert!(
                parse(&format!(r#"{{"others":{{"accounts":{wrong}}}}}"#)).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn tools_prompts_and_resources_are_granted_together_or_each_by_itself() {
        let clients = parse(
            r#"{"others":{"gates":["external-call"],
                "servers":{"docs":["get*"],"git":{"prompts":["*"],"resources":["file:///pub/*"]}},
                "deny":{"git":["secret*"],"docs":{"resources":["get-x"]}}}}"#,
        )
        .unwrap();
        let anybody = rights(&clients, 4242);
        for (server, feature, name, may) in [
            ("docs", Feature::Tool, "get_x", true),
            ("docs", Feature::Prompt, "get_x", true),
            ("docs", Feature::Resource, "get://x", true),
            ("docs", Feature::Resource, "get-x", false),
            ("docs", Feature::Resource, "file:///a", false),
            ("git", Feature::Tool, "log", false),
            ("git", Feature::Prompt, "review", true),
            ("git", Feature::Prompt, "secret", false),
            ("git", Feature::Resource, "file:///pub/a", true),
            ("git", Feature::Template, "file:///pub/{a}", true),
            ("git", Feature::Resource, "file:///a", false),
        ] {
            assert_eq!(
                anybody.may(server, feature, name).is_ok(),
                may,
                "{server} {name}"
            );
            assert_eq!(anybody.sees(server, feature, name), may, "{server} {name}");
        }
        for wrong in [
            r#"{}"#,
            r#"{"tools":[]}"#,
            r#"{"prompt":["x"]}"#,
            r#"{"prompts":[""]}"#,
            r#""*""#,
        ] {
            let text = format!(r#"{{"others":{{"servers":{{"git":{wrong}}}}}}}"#);
            assert!(parse(&text).is_err(), "{wrong}");
        }
    }

    #[test]
    fn of_several_list_modes_the_one_that_lists_most_holds() {
        let clients = parse(
            r#"{"users":{"alice":{"list":"search"}},
                "groups":{"dev":{"list":"search"},"ops":{"list":"pinned"}},
                "others":{}}"#,
        )
        .unwrap();
        for (uid, mode) in [
            (1001, ListMode::Search),
            (1002, ListMode::Search),
            (1003, ListMode::Pinned),
            (4242, ListMode::All),
            (0, ListMode::All),
        ] {
            let rights = rights(&clients, uid);
            assert_eq!(rights.list, mode, "{uid}");
            // An agent is listed what its person is; who sees one server alone is listed all of it.
            assert_eq!(rights.of_agent(&AgentTools::default()).list, mode);
            assert_eq!(rights.narrowed(&Arc::from("git")).list, ListMode::All);
        }
        for wrong in [r#""none""#, r#""All""#, "true", "[]"] {
            assert!(
                parse(&format!(r#"{{"others":{{"list":{wrong}}}}}"#)).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn what_servers_may_ask_of_a_person_is_what_any_entry_lets_them() {
        let clients = parse(
            r#"{"users":{"alice":{"ask":[]}},
                "groups":{"dev":{"ask":["elicitation"]},"ops":{"ask":["roots"]}},
                "others":{}}"#,
        )
        .unwrap();
        for (uid, may) in [
            (1001, [false; 3]),
            (1002, [true, false, false]),
            (1003, [true, false, true]),
            (4242, [true; 3]),
            (0, [true; 3]),
        ] {
            let rights = rights(&clients, uid);
            let lets = [
                ElicitationKind::Url,
                ElicitationKind::Sampling,
                ElicitationKind::Roots,
            ]
            .map(|ask| rights.may_be_asked("git", ask).is_ok());
            assert_eq!(lets, may, "{uid}");
        }
        let failure = rights(&clients, 1003)
            .may_be_asked("git", ElicitationKind::Sampling)
            .unwrap_err();
        assert_eq!(
            failure.rule.as_deref(),
            Some("clients.json:2: groups.dev.ask, clients.json:2: groups.ops.ask")
        );
        for wrong in [r#"["form"]"#, r#"["Roots"]"#, "[1]", r#""roots""#] {
            assert!(
                parse(&format!(r#"{{"others":{{"ask":{wrong}}}}}"#)).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn two_users_one_with_everything_one_with_a_single_tool() {
        let clients = parse(TWO_USERS).unwrap();
        let alice = rights(&clients, 1001);
        assert!(alice.operator && !alice.self_approve);
        assert_eq!(alice.closes(Gate::Write), None);
        assert!(
            alice.may("github", Feature::Tool, "delete_repo").is_ok()
                && alice.sees("github", Feature::Tool, "delete_repo")
        );
        let bob = rights(&clients, 1002);
        assert!(!bob.operator);
        assert_eq!(
            bob.closes(Gate::Write).unwrap(),
            "clients.json:4: users.bob.gates"
        );
        assert_eq!(bob.closes(Gate::External), None);
        assert!(
            bob.may("docs", Feature::Tool, "search").is_ok()
                && bob.sees("docs", Feature::Tool, "search")
        );
        for (server, tool) in [
            ("docs", "search2"),
            ("docs", "Search"),
            ("doc", "search"),
            ("docs2", "search"),
        ] {
            let failure = bob.may(server, Feature::Tool, tool).unwrap_err();
            assert_eq!(failure.code, Code::PolicyDenied);
            assert_eq!(
                failure.rule.as_deref(),
                Some("clients.json:4: users.bob.servers")
            );
            assert_eq!(failure.server.as_deref(), Some(server));
            assert!(!bob.sees(server, Feature::Tool, tool));
        }
    }

    #[test]
    fn nobody_else_gets_anything_once_there_is_a_file() {
        let clients = parse(TWO_USERS).unwrap();
        let eve = rights(&clients, 4242);
        assert!(!eve.operator && !eve.sees("docs", Feature::Tool, "search"));
        let failure = eve.may("docs", Feature::Tool, "search").unwrap_err();
        assert!(failure.rule.unwrap().contains("no entry names this user"));
        assert!(eve.closes(Gate::External).is_some());
        assert_eq!(eve.closes(Gate::None), None);
        let clients = parse("{}").unwrap();
        assert!(
            rights(&clients, 1001)
                .may("docs", Feature::Tool, "search")
                .is_err()
        );
    }

    #[test]
    fn without_a_file_the_daemons_gates_decide() {
        let clients = Clients::absent(PathBuf::from("/nowhere"));
        let anybody = rights(&clients, 4242);
        assert!(
            anybody.may("x", Feature::Tool, "y").is_ok()
                && anybody.sees("x", Feature::Tool, "y")
                && !anybody.operator
        );
        assert_eq!(anybody.closes(Gate::Write), None);
        let root = rights(&clients, 0);
        assert!(root.operator && !root.self_approve);
    }

    #[test]
    fn a_daemon_of_ones_own_serves_nobody_else() {
        let own = nix::unistd::geteuid().as_raw();
        let caller = |uid| Caller {
            uid,
            gid: 100,
            pid: None,
        };
        let clients = Clients::absent("/x/clients.json".into()).alone();
        for uid in [0, own] {
            let rights = clients.rights(&caller(uid));
            assert!(
                rights.operator && rights.self_approve && rights.sees_any("s"),
                "{uid}"
            );
        }
        let other = clients.rights(&caller(own + 1));
        assert!(!other.operator && !other.self_approve && !other.sees_any("s"));
        assert!(other.closes(Gate::Write).is_some() && other.closes(Gate::External).is_some());
    }

    #[test]
    fn a_users_entry_replaces_those_of_the_groups() {
        let clients = parse(
            r#"{"users":{"bob":{"gates":["external-call"],"servers":{"docs":["search"]}}},
                "groups":{"dev":{"gates":["write","external-call"],"servers":{"*":["*"]},"operator":true}}}"#,
        )
        .unwrap();
        let bob = rights(&clients, 1002);
        assert!(
            !bob.operator
                && bob.closes(Gate::Write).is_some()
                && bob.may("git", Feature::Tool, "log").is_err()
        );
        assert!(rights(&clients, 1003).operator);
    }

    #[test]
    fn groups_add_up_and_deny_wins() {
        let clients = parse(
            r#"{"groups":{
                "dev":{"gates":["external-call"],"servers":{"git*":["*"]},"deny":{"*":["*_secret*"]}},
                "ops":{"gates":["write"],"servers":{"docs":["*"],"git":["read_secret"]}}},
               "others":{"gates":["external-call"],"servers":{"docs":["search"]}}}"#,
        )
        .unwrap();
        let carol = rights(&clients, 1003);
        assert!(carol.closes(Gate::Write).is_none() && carol.closes(Gate::External).is_none());
        assert!(
            carol.may("github", Feature::Tool, "log").is_ok()
                && carol.may("docs", Feature::Tool, "anything").is_ok()
        );
        let failure = carol.may("git", Feature::Tool, "read_secret").unwrap_err();
        assert_eq!(
            failure.rule.as_deref(),
            Some("clients.json:2: groups.dev.deny.*[0]")
        );
        assert!(!carol.sees("git", Feature::Tool, "read_secret"));
        let bob = rights(&clients, 1002);
        assert!(
            bob.may("docs", Feature::Tool, "search").is_err(),
            "others is for those that no entry names"
        );
        assert!(
            rights(&clients, 4242)
                .may("docs", Feature::Tool, "search")
                .is_ok()
        );
    }

    #[test]
    fn the_peers_own_gid_counts() {
        let clients =
            parse(r#"{"groups":{"51":{"gates":["external-call"],"servers":{"*":["*"]}}}}"#)
                .unwrap();
        let peer = Caller {
            uid: 7777,
            gid: 51,
            pid: None,
        };
        assert!(clients.rights(&peer).may("x", Feature::Tool, "y").is_ok());
        assert!(rights(&clients, 7777).may("x", Feature::Tool, "y").is_err());
    }

    #[test]
    fn what_an_agents_own_entry_denies_is_refused_by_its_place() {
        let clients = parse(
            r#"{"users":{"alice":{"gates":["external-call"],"servers":{"git":["*"],"docs":["*"]},
                "deny":{"git":["push"]}}}}"#,
        )
        .unwrap();
        let text = "{\"agents\":{\"coder\":{\n\"tools\":{\n\"git\":{\"allow\":[\"*\"],\n\"deny\":[\"reset\",\"push\"]},\n\"web\":{}}}}}";
        let document = Document::parse(text.as_bytes(), "external-mcp.json").unwrap();
        let agents = document.root().object(&["agents"]).unwrap();
        let agents = agents.need("agents").unwrap();
        let coder = agents.object(&["coder"]).unwrap();
        let coder = coder.need("coder").unwrap().object(&["tools"]).unwrap();
        let tools = AgentTools::read(coder.need("tools").unwrap()).unwrap();
        let person = rights(&clients, 1001);
        let agent = person.of_agent(&tools);
        assert!(agent.may("git", Feature::Tool, "log").is_ok());
        for (server, tool, place) in [
            (
                "git",
                "reset",
                "external-mcp.json:4: agents.coder.tools.git.deny[0]",
            ),
            ("docs", "read", "external-mcp.json:2: agents.coder.tools"),
            // What its person's rules deny is named first; of what they do not give, the grant.
            ("git", "push", "clients.json:2: users.alice.deny.git[0]"),
            ("web", "open", "clients.json:1: users.alice.servers"),
        ] {
            let failure = agent.may(server, Feature::Tool, tool).unwrap_err();
            assert_eq!(failure.code, Code::PolicyDenied);
            assert_eq!(failure.rule.as_deref(), Some(place));
            assert!(failure.message.contains(place), "{failure}");
            let of_person = person.may(server, Feature::Tool, tool);
            assert_eq!(of_person.is_err(), place.starts_with("clients.json"));
        }
    }

    #[test]
    fn a_limit_has_its_place_where_the_file_sets_it() {
        for (text, key, place) in [
            (
                "{\"limits\":{\n\"clients\":7}}",
                "clients",
                "clients.json:2: limits.clients",
            ),
            (
                "{\"limits\":{\n\"clients\":7}}",
                "calls_per_client",
                "clients.json:1: limits.calls_per_client",
            ),
            ("{}", "clients", "clients.json: limits.clients"),
        ] {
            assert_eq!(parse(text).unwrap().limit_place(key), place);
        }
        let absent = Clients::absent("/x/clients.json".into());
        let place = absent.limit_place("message_bytes");
        assert_eq!(place, "/x/clients.json: limits.message_bytes");
    }

    #[test]
    fn root_is_an_operator_and_unrestricted_unless_named() {
        let clients = parse(r#"{"others":{}}"#).unwrap();
        let root = rights(&clients, 0);
        assert!(root.operator && root.may("x", Feature::Tool, "y").is_ok());
        let clients = parse(r#"{"users":{"root":{}}}"#).unwrap();
        let root = rights(&clients, 0);
        assert!(root.operator && root.may("x", Feature::Tool, "y").is_err());
    }

    #[test]
    fn unknown_names_are_noted_and_do_nothing() {
        let clients =
            parse(r#"{"users":{"mallory":{"servers":{"*":["*"]}}},"groups":{"x y":{}}}"#).unwrap();
        assert_eq!(clients.notes().len(), 2);
        assert!(
            clients.notes()[0].contains("users.mallory"),
            "{:?}",
            clients.notes()
        );
    }

    #[test]
    fn mistakes_are_named_in_their_place() {
        for (text, message) in [
            (r#"{"user":{}}"#, "did you mean \"users\"?"),
            (
                r#"{"users":{"alice":{"gate":[]}}}"#,
                "did you mean \"gates\"?",
            ),
            (
                r#"{"users":{"alice":{"gates":["external"]}}}"#,
                "must be write or external-call",
            ),
            (
                r#"{"users":{"alice":{"gates":"write"}}}"#,
                "must be an array",
            ),
            (
                r#"{"users":{"alice":{"servers":["*"]}}}"#,
                "must be an object",
            ),
            (r#"{"users":{"alice":{"servers":{"*":[]}}}}"#, "empty list"),
            (
                r#"{"users":{"alice":{"servers":{"Git":["*"]}}}}"#,
                "server's id",
            ),
            (
                r#"{"users":{"alice":{"servers":{"git_*":["*"]}}}}"#,
                "server's id",
            ),
            (
                r#"{"users":{"alice":{"servers":{"":["*"]}}}}"#,
                "server's id",
            ),
            (
                r#"{"users":{"alice":{"servers":{"git":[""]}}}}"#,
                "empty pattern",
            ),
            (
                r#"{"users":{"alice":{"operator":1}}}"#,
                "must be true or false",
            ),
            (
                r#"{"users":{"alice":{"self_approve":true}}}"#,
                "goes with operator",
            ),
            (r#"{"users":{"alice":{},"1001":{}}}"#, "a second entry"),
            (r#"{"users":{"alice":{},"alice":{}}}"#, "stands twice"),
            (r#"{"users":{"007":{}}}"#, "leading zeros"),
            (r#"{"users":{"4294967296":{}}}"#, "4294967295"),
            (r#"{"users":{"":{}}}"#, "from 0"),
        ] {
            let error = parse(text).err().unwrap();
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.to_string().starts_with("clients.json:1:"), "{error}");
        }
    }

    #[test]
    fn a_file_is_read_with_the_system_accounts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("clients.json");
        assert!(Clients::read(&path).unwrap().rules.is_none());
        let uid = nix::unistd::geteuid().as_raw();
        std::fs::write(
            &path,
            format!(r#"{{"users":{{"{uid}":{{"servers":{{"docs":["*"]}}}}}}}}"#),
        )
        .unwrap();
        let clients = Clients::read(&path).unwrap();
        let own = rights(&clients, uid);
        assert!(
            own.may("docs", Feature::Tool, "x").is_ok()
                && own.may("git", Feature::Tool, "x").is_err()
        );
        assert!(!SystemAccounts.groups(0).is_empty());
        assert_eq!(SystemAccounts.uid("root"), Some(0));
    }

    proptest! {
        #[test]
        fn what_is_seen_may_be_called(
            granted in prop::collection::vec("[ab*]{1,3}", 1..4), denied in prop::collection::vec("[ab*]{1,3}", 1..4),
            server in "[ab]{1,3}", tool in "[ab]{1,3}",
        ) {
            let list = serde_json::to_string(&granted).unwrap();
            let not = serde_json::to_string(&denied).unwrap();
            let clients = parse(&format!(
                r#"{{"others":{{"gates":["external-call"],"servers":{{"*":{list}}},"deny":{{"a*":{not}}}}}}}"#
            )).unwrap();
            let rights = rights(&clients, 5);
            prop_assert_eq!(rights.sees(&server, Feature::Tool, &tool), rights.may(&server, Feature::Tool, &tool).is_ok());
            if server.starts_with('a') && denied.contains(&"*".to_owned()) {
                prop_assert!(!rights.sees(&server, Feature::Tool, &tool));
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            let _ = Clients::parse(&bytes, "f", Box::new(Some3));
        }
    }
}
