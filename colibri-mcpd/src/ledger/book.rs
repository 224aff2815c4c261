//! The counts in memory: by payer, then by server, then by name; looked up without making anything.

use std::collections::HashMap;
use std::sync::Arc;

use colibri_api::{CostDay, CostSum};

use crate::store::CostKey;

/// The most names that are counted for one payer, so that no servers, whatever they list, make the ledger long. Further
/// tools of a server are counted together, as those are that there are not.
const MAX_NAMES: usize = 2048;
/// The most names altogether: they stay for the day, and longer while nothing can be written.
const MAX_ALL: usize = 1 << 16;

/// True if a server that has so many of all names may have another: it leaves others as many as it has itself.
fn has_room(own: usize, all: usize, most: usize) -> bool {
    own < most.saturating_sub(all - own) / 2
}
/// The most lists whose tools are not yet counted one by one.
const MAX_LISTS: usize = 64;

/// The payer of a cost.
#[derive(Debug, Clone, Copy)]
pub struct Payer<'a> {
    /// The day on which the request was read.
    pub day: CostDay,
    /// The person.
    pub uid: u32,
    /// The agent's id; `None`: the person themselves.
    pub agent: Option<&'a Arc<str>>,
}

/// The subject of a cost. No name is a client's own word.
#[derive(Debug, Clone, Copy)]
pub struct CostLine<'a> {
    /// The server's id; empty: the model that an agent asked.
    pub server: &'a str,
    /// The method.
    pub method: &'a str,
    /// The server's own name of the tool; empty: no tool, or one that there is not.
    pub tool: &'a str,
}

impl CostLine<'static> {
    /// The model that an agent asked.
    pub const MODEL: CostLine<'static> = CostLine {
        server: "",
        method: "model",
        tool: "",
    };
}

/// A tool in a list.
#[derive(Debug, PartialEq, Eq)]
pub struct ListedToolCost {
    /// The server's id.
    pub server: Arc<str>,
    /// The server's own name of the tool.
    pub tool: Box<str>,
    /// Bytes of its definition there.
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct UserAccount {
    day: CostDay,
    uid: u32,
    agent: Option<Arc<str>>,
}

#[derive(Default)]
struct CostLines {
    servers: HashMap<Box<str>, ServerToolNames>,
    names: usize,
}

/// Of one server.
#[derive(Default)]
struct ServerToolNames {
    tools: HashMap<Box<str>, CostSum>,
    methods: HashMap<Box<str>, CostSum>,
}

/// The method whose names are counted.
const NAMED: &str = "tools/call";

/// The counts since they were last taken.
#[derive(Default)]
pub(super) struct Book {
    accounts: HashMap<UserAccount, CostLines>,
    names: usize,
    /// The number of names of each server.
    of_servers: HashMap<Box<str>, usize>,
    /// The number of answers with each list: a list is one for many, and long.
    lists: Vec<(UserAccount, Arc<[ListedToolCost]>, u64)>,
}

impl From<&Payer<'_>> for UserAccount {
    fn from(payer: &Payer<'_>) -> UserAccount {
        UserAccount {
            day: payer.day,
            uid: payer.uid,
            agent: payer.agent.cloned(),
        }
    }
}

impl Book {
    /// Counts a cost.
    pub(super) fn count(&mut self, payer: &Payer<'_>, line: CostLine<'_>, cost: &CostSum) {
        self.add(UserAccount::from(payer), line, cost);
    }

    fn add(&mut self, account: UserAccount, line: CostLine<'_>, cost: &CostSum) {
        let (of_servers, names) = (&self.of_servers, self.names);
        let has_room = || {
            let own = of_servers.get(line.server).copied().unwrap_or_default();
            has_room(own, names, MAX_ALL)
        };
        let is_new = match self.accounts.get_mut(&account) {
            Some(lines) => lines.count(line, cost, has_room),
            None => (self.accounts.entry(account).or_default()).count(line, cost, has_room),
        };
        if is_new {
            self.names += 1;
            at(&mut self.of_servers, line.server, |names: &mut usize| *names += 1);
        }
    }

    /// Counts a list that was answered.
    pub(super) fn count_list(&mut self, payer: &Payer<'_>, tools: &Arc<[ListedToolCost]>) {
        if tools.is_empty() {
            return;
        }
        let account = UserAccount::from(payer);
        let is_it =
            |(of, list, _): &&mut (UserAccount, Arc<[ListedToolCost]>, u64)| Arc::ptr_eq(list, tools) && *of == account;
        match self.lists.iter_mut().find(is_it) {
            Some((_, _, times)) => *times += 1,
            None => self.lists.push((account, tools.clone(), 1)),
        }
        if self.lists.len() > MAX_LISTS {
            self.count_listed();
        }
    }

    /// Counts what was listed tool by tool.
    fn count_listed(&mut self) {
        for (account, tools, times) in std::mem::take(&mut self.lists) {
            for listed in &*tools {
                let line = CostLine {
                    server: &listed.server,
                    method: NAMED,
                    tool: &listed.tool,
                };
                let cost = CostSum {
                    lists: times,
                    listed_bytes: times.saturating_mul(listed.bytes),
                    ..CostSum::default()
                };
                self.add(account.clone(), line, &cost);
            }
        }
    }

    /// Takes what was counted out, to be written. Names stay, so that they are the same number for the whole day; those
    /// of other days go.
    pub(super) fn take(&mut self, today: CostDay) -> Vec<(CostKey, CostSum)> {
        self.count_listed();
        let mut costs = Vec::new();
        for (account, lines) in &mut self.accounts {
            for (server, names) in &mut lines.servers {
                let tools = names.tools.iter_mut().map(|(tool, cost)| (NAMED, &**tool, cost));
                let methods = names.methods.iter_mut().map(|(method, cost)| (&**method, "", cost));
                for (method, tool, cost) in tools.chain(methods) {
                    let cost = std::mem::take(cost);
                    if cost == CostSum::default() {
                        continue;
                    }
                    let key = CostKey {
                        day: account.day,
                        uid: account.uid,
                        agent: account.agent.as_deref().unwrap_or_default().to_owned(),
                        server: server.to_string(),
                        method: method.to_owned(),
                        tool: tool.to_owned(),
                    };
                    costs.push((key, cost));
                }
            }
        }
        self.accounts.retain(|account, _| account.day == today);
        self.names = self.accounts.values().map(|lines| lines.names).sum();
        self.of_servers.clear();
        for (server, names) in self.accounts.values().flat_map(|lines| &lines.servers) {
            at(&mut self.of_servers, server, |all: &mut usize| {
                *all += names.tools.len()
            });
        }
        costs
    }

    /// Counts again what was taken and could not be written.
    pub(super) fn give_back(&mut self, costs: &[(CostKey, CostSum)]) {
        for (key, cost) in costs {
            let agent = Some(Arc::from(&*key.agent)).filter(|agent: &Arc<str>| !agent.is_empty());
            let payer = Payer {
                day: key.day,
                uid: key.uid,
                agent: agent.as_ref(),
            };
            let line = CostLine {
                server: &key.server,
                method: &key.method,
                tool: &key.tool,
            };
            self.count(&payer, line, cost);
        }
    }
}

impl CostLines {
    /// Counts a cost. `true`: under a name that was not there.
    fn count(&mut self, line: CostLine<'_>, cost: &CostSum, has_room_for_all: impl Fn() -> bool) -> bool {
        let all = self.names;
        let is_new = at(&mut self.servers, line.server, |names: &mut ServerToolNames| {
            let is_tool = line.method == NAMED && !line.tool.is_empty();
            if is_tool && let Some(known) = names.tools.get_mut(line.tool) {
                known.add(cost);
                return false;
            }
            if is_tool && has_room(names.tools.len(), all, MAX_NAMES) && has_room_for_all() {
                at(&mut names.tools, line.tool, |new: &mut CostSum| new.add(cost));
                return true;
            }
            at(&mut names.methods, line.method, |method: &mut CostSum| method.add(cost));
            false
        });
        self.names += usize::from(is_new);
        is_new
    }
}

/// Works on what stands under a name, which is made where it is not there.
fn at<T: Default, R>(map: &mut HashMap<Box<str>, T>, name: &str, work: impl FnOnce(&mut T) -> R) -> R {
    match map.get_mut(name) {
        Some(found) => work(found),
        None => work(map.entry(name.into()).or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: CostDay = CostDay(20_000);

    fn payer(uid: u32, agent: Option<&Arc<str>>) -> Payer<'_> {
        Payer { day: DAY, uid, agent }
    }

    fn tool<'a>(server: &'a str, tool: &'a str) -> CostLine<'a> {
        CostLine {
            server,
            method: NAMED,
            tool,
        }
    }

    fn one() -> CostSum {
        CostSum {
            calls: 1,
            bytes_in: 3,
            ..CostSum::default()
        }
    }

    fn calls(costs: &[(CostKey, CostSum)]) -> u64 {
        costs.iter().map(|(_, cost)| cost.calls).sum()
    }

    #[test]
    fn a_cost_is_taken_once_under_all_its_names() {
        let (mut book, agent) = (Book::default(), Arc::from("coder"));
        for _ in 0..2 {
            book.count(&payer(1, Some(&agent)), tool("s", "t"), &one());
        }
        book.count(&payer(1, None), tool("s", ""), &one());
        let mut taken = book.take(DAY);
        taken.sort_by(|a, b| a.0.cmp(&b.0));
        let shown = taken
            .iter()
            .map(|(key, cost)| (&*key.agent, &*key.tool, cost.calls, cost.bytes_in));
        assert_eq!(shown.collect::<Vec<_>>(), [("", "", 1, 3), ("coder", "t", 2, 6)]);
        assert_eq!(book.take(DAY), []);
        book.give_back(&taken);
        book.count(&payer(1, Some(&agent)), tool("s", "t"), &one());
        let mut again = book.take(DAY);
        again.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!((again.len(), again[1].1.calls), (2, 3));
    }

    #[test]
    fn lists_are_counted_by_the_tools_in_them() {
        let (mut book, agent) = (Book::default(), Arc::from("coder"));
        let tool = |tool: &str, bytes| ListedToolCost {
            server: Arc::from("s"),
            tool: tool.into(),
            bytes,
        };
        let pages: Vec<Arc<[ListedToolCost]>> = (0..3 * MAX_LISTS)
            .map(|_| Arc::from([tool("a", 10), tool("b", 5)]))
            .collect();
        for page in pages.iter().chain(&pages[..2]) {
            book.count_list(&payer(1, Some(&agent)), page);
            book.count_list(&payer(1, None), page);
        }
        book.count_list(&payer(1, None), &Arc::default());
        assert!(book.lists.len() <= MAX_LISTS);
        let taken = book.take(DAY);
        let times = 3 * MAX_LISTS as u64 + 2;
        assert_eq!(taken.len(), 4);
        for (key, cost) in taken {
            let bytes = if key.tool == "a" { 10 } else { 5 };
            assert_eq!((cost.calls, cost.lists, cost.listed_bytes), (0, times, times * bytes));
        }
    }

    #[test]
    fn names_without_end_are_one_and_nobody_elses_loss() {
        let mut book = Book::default();
        for round in 0..3 {
            for name in 0..10_000 {
                book.count(&payer(1, None), tool("s", &format!("{round} {name}")), &one());
            }
            let taken = book.take(DAY);
            assert!(taken.len() <= MAX_NAMES + 1, "{}", taken.len());
            assert_eq!(calls(&taken), 10_000, "all are counted");
        }
        book.count(&payer(1, None), tool("s", "0 7"), &one());
        book.count(&payer(2, None), tool("s", "other"), &one());
        let taken = book.take(DAY);
        assert!(taken.iter().all(|(key, _)| !key.tool.is_empty()), "{taken:?}");
    }

    #[test]
    fn a_server_that_lists_without_end_takes_no_names_from_others() {
        let mut book = Book::default();
        let list = |server: &str, count: usize| -> Arc<[ListedToolCost]> {
            let tools = (0..count).map(|name| ListedToolCost {
                server: Arc::from(server),
                tool: name.to_string().into(),
                bytes: 1,
            });
            tools.collect()
        };
        let (endless, other) = (list("endless", 1_100), list("other", 100));
        for uid in 0..80 {
            book.count_list(&payer(uid, None), &endless);
            book.count_list(&payer(uid, None), &other);
            let taken = book.take(DAY);
            let of = |server: &str| {
                let named = |(key, _): &&(CostKey, CostSum)| key.server == server && !key.tool.is_empty();
                taken.iter().filter(named).count()
            };
            assert_eq!(of("other"), 100, "{uid}");
            assert!(of("endless") <= MAX_NAMES / 2);
        }
        assert!(book.names <= MAX_ALL);
        assert_eq!(book.names, book.of_servers.values().sum::<usize>());
    }

    #[test]
    fn what_cannot_be_written_is_bounded_over_all_payers_and_days() {
        let mut book = Book::default();
        for day in 0..100 {
            for name in 0..1000 {
                let payer = Payer {
                    day: CostDay(day),
                    uid: 1,
                    agent: None,
                };
                book.count(&payer, tool("s", &name.to_string()), &one());
            }
            let taken = book.take(CostDay(day));
            book.give_back(&taken);
        }
        let taken = book.take(CostDay(100));
        assert!(taken.len() <= MAX_ALL + 100, "{}", taken.len());
        assert_eq!(calls(&taken), 100_000);
        assert_eq!(
            (book.accounts.len(), book.names),
            (0, 0),
            "other days are forgotten once they are written"
        );
    }
}
