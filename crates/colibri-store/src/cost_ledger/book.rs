//! The counts in memory: by payer and origin, then by server, then by name; looked up without
//! making anything.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use colibri_api::{CostDay, CostSum};

use crate::CostKey;

/// The most names that are counted for one payer, so that no servers, whatever they list, make the
/// ledger long. Further tools of a server are counted together, as those are that there are not. A
/// row of a client, a task or a model is such a name too: further ones are counted without task,
/// without client, without model.
const MAX_NAMES: usize = 2048;
/// The most names altogether: they stay for the day, and longer while nothing can be written.
const MAX_ALL: usize = 1 << 16;
/// The most clients that are counted by name for one payer: a client names itself as it likes.
const MAX_CLIENTS: usize = 64;
/// The most lists whose tools are not yet counted one by one.
const MAX_LISTS: usize = 64;

/// The payer of a cost, and its origin.
#[derive(Debug, Clone, Copy)]
pub struct Payer<'a> {
    /// The day on which the request was read.
    pub day: CostDay,
    /// The person.
    pub uid: u32,
    /// The agent's id; `None`: the person themselves.
    pub agent: Option<&'a Arc<str>>,
    /// The name that the client declares of itself, bounded.
    pub client: Option<&'a Arc<str>>,
    /// The task for which it was.
    pub task: Option<u64>,
    /// The model that was asked, by a bounded name.
    pub model: Option<&'a Arc<str>>,
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

/// Costs of one payer that came from the same place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CostOrigin {
    of: UserAccount,
    client: Option<Arc<str>>,
    task: Option<u64>,
    model: Option<Arc<str>>,
}

impl CostOrigin {
    /// True if it says no more than who pays.
    fn is_plain(&self) -> bool {
        self.client.is_none() && self.task.is_none() && self.model.is_none()
    }

    /// Those that stand for it where it has no room: without task, without client, without model.
    fn coarser(&self) -> [CostOrigin; 3] {
        let without_task = CostOrigin {
            task: None,
            ..self.clone()
        };
        let without_client = CostOrigin {
            client: None,
            ..without_task.clone()
        };
        let plain = CostOrigin {
            model: None,
            ..without_client.clone()
        };
        [without_task, without_client, plain]
    }
}

/// Of one server.
#[derive(Default)]
struct ServerToolNames {
    tools: HashMap<Box<str>, CostSum>,
    methods: HashMap<Box<str>, CostSum>,
}

impl ServerToolNames {
    /// The counts of a line; `None`: it is new.
    fn known(&mut self, line: CostLine<'_>) -> Option<&mut CostSum> {
        match is_tool(line) {
            true => self.tools.get_mut(line.tool),
            false => self.methods.get_mut(line.method),
        }
    }

    /// The counts of a line, which is made where it is new.
    fn at(&mut self, line: CostLine<'_>) -> &mut CostSum {
        match is_tool(line) {
            true => at(&mut self.tools, line.tool),
            false => at(&mut self.methods, line.method),
        }
    }
}

/// The method whose names are counted.
const NAMED: &str = "tools/call";

fn is_tool(line: CostLine<'_>) -> bool {
    line.method == NAMED && !line.tool.is_empty()
}

/// The number of names, and of those of each server.
#[derive(Default)]
struct NameCounts {
    all: usize,
    servers: HashMap<Box<str>, usize>,
}

impl NameCounts {
    /// True if a server may have another of so many names: it leaves others as many as it has
    /// itself.
    fn has_room(&self, server: &str, most: usize) -> bool {
        let own = self.servers.get(server).copied().unwrap_or_default();
        own < most.saturating_sub(self.all - own) / 2
    }

    fn add(&mut self, server: &str, names: usize) {
        self.all += names;
        *at(&mut self.servers, server) += names;
    }
}

/// The names of one payer.
#[derive(Default)]
struct PayerNames {
    names: NameCounts,
    clients: HashSet<Arc<str>>,
}

/// The counts since they were last taken.
#[derive(Default)]
pub(super) struct Book {
    accounts: HashMap<CostOrigin, HashMap<Box<str>, ServerToolNames>>,
    payers: HashMap<UserAccount, PayerNames>,
    /// The names of all payers.
    names: NameCounts,
    /// The number of answers with each list: a list is one for many, and long.
    lists: Vec<(CostOrigin, Arc<[ListedToolCost]>, u64)>,
}

impl From<&Payer<'_>> for CostOrigin {
    fn from(payer: &Payer<'_>) -> CostOrigin {
        CostOrigin {
            of: UserAccount {
                day: payer.day,
                uid: payer.uid,
                agent: payer.agent.cloned(),
            },
            client: payer.client.cloned(),
            task: payer.task,
            model: payer.model.cloned(),
        }
    }
}

impl Book {
    /// Counts a cost.
    pub(super) fn count(&mut self, payer: &Payer<'_>, line: CostLine<'_>, cost: &CostSum) {
        self.add(CostOrigin::from(payer), line, cost);
    }

    fn add(&mut self, origin: CostOrigin, line: CostLine<'_>, cost: &CostSum) {
        if let Some(known) = self.known(&origin, line) {
            return known.add(cost);
        }
        self.add_new(origin, line, cost);
    }

    fn known(&mut self, origin: &CostOrigin, line: CostLine<'_>) -> Option<&mut CostSum> {
        self.accounts
            .get_mut(origin)?
            .get_mut(line.server)?
            .known(line)
    }

    /// Counts a cost in a row of its own, as long as there is room; else with others.
    fn add_new(&mut self, mut origin: CostOrigin, line: CostLine<'_>, cost: &CostSum) {
        let payer = match self.payers.get_mut(&origin.of) {
            Some(payer) => payer,
            None => self.payers.entry(origin.of.clone()).or_default(),
        };
        origin.client.take_if(|name| {
            let is_one_more = !payer.clients.contains(name) && payer.clients.len() >= MAX_CLIENTS;
            if !is_one_more {
                payer.clients.insert(name.clone());
            }
            is_one_more
        });
        if let Some(known) = self.known(&origin, line) {
            return known.add(cost);
        }
        let payer = self.payers.entry(origin.of.clone()).or_default();
        // There are few methods, and no client names one.
        let is_free = origin.is_plain() && !is_tool(line);
        let has_room = payer.names.has_room(line.server, MAX_NAMES)
            && self.names.has_room(line.server, MAX_ALL);
        if !is_free && has_room {
            payer.names.add(line.server, 1);
            self.names.add(line.server, 1);
        }
        if is_free || has_room {
            let servers = self.accounts.entry(origin).or_default();
            return at(servers, line.server).at(line).add(cost);
        }
        let [without_task, without_client, plain] = origin.coarser();
        for coarser in [&without_task, &without_client, &plain] {
            if let Some(known) = self.known(coarser, line) {
                return known.add(cost);
            }
        }
        let line = CostLine { tool: "", ..line };
        let servers = self.accounts.entry(plain).or_default();
        at(servers, line.server).at(line).add(cost);
    }

    /// Counts a list that was answered.
    pub(super) fn count_list(&mut self, payer: &Payer<'_>, tools: &Arc<[ListedToolCost]>) {
        if tools.is_empty() {
            return;
        }
        let origin = CostOrigin::from(payer);
        let is_it = |(of, list, _): &&mut (CostOrigin, Arc<[ListedToolCost]>, u64)| {
            Arc::ptr_eq(list, tools) && *of == origin
        };
        match self.lists.iter_mut().find(is_it) {
            Some((_, _, times)) => *times += 1,
            None => self.lists.push((origin, tools.clone(), 1)),
        }
        if self.lists.len() > MAX_LISTS {
            self.count_listed();
        }
    }

    /// Counts what was listed tool by tool.
    fn count_listed(&mut self) {
        for (origin, tools, times) in std::mem::take(&mut self.lists) {
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
                self.add(origin.clone(), line, &cost);
            }
        }
    }

    /// Takes what was counted out, to be written. Names stay, so that they are the same number for
    /// the whole day; those of other days go.
    pub(super) fn take(&mut self, today: CostDay) -> Vec<(CostKey, CostSum)> {
        self.count_listed();
        let owned = |text: &Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
        let mut costs = Vec::new();
        for (origin, servers) in &mut self.accounts {
            for (server, names) in servers {
                let tools = names
                    .tools
                    .iter_mut()
                    .map(|(tool, cost)| (NAMED, &**tool, cost));
                let methods = names
                    .methods
                    .iter_mut()
                    .map(|(method, cost)| (&**method, "", cost));
                for (method, tool, cost) in tools.chain(methods) {
                    let cost = std::mem::take(cost);
                    if cost == CostSum::default() {
                        continue;
                    }
                    let key = CostKey {
                        day: origin.of.day,
                        uid: origin.of.uid,
                        agent: owned(&origin.of.agent),
                        client: owned(&origin.client),
                        task: origin.task.unwrap_or_default(),
                        model: owned(&origin.model),
                        server: server.to_string(),
                        method: method.to_owned(),
                        tool: tool.to_owned(),
                    };
                    costs.push((key, cost));
                }
            }
        }
        self.accounts.retain(|origin, _| origin.of.day == today);
        self.payers.retain(|of, _| of.day == today);
        self.names = NameCounts::default();
        for (server, names) in self.payers.values().flat_map(|payer| &payer.names.servers) {
            self.names.add(server, *names);
        }
        costs
    }

    /// Counts again what was taken and could not be written.
    pub(super) fn give_back(&mut self, costs: &[(CostKey, CostSum)]) {
        let shared = |text: &str| Some(Arc::from(text)).filter(|text: &Arc<str>| !text.is_empty());
        for (key, cost) in costs {
            let (agent, client, model) =
                (shared(&key.agent), shared(&key.client), shared(&key.model));
            let payer = Payer {
                day: key.day,
                uid: key.uid,
                agent: agent.as_ref(),
                client: client.as_ref(),
                task: Some(key.task).filter(|task| *task > 0),
                model: model.as_ref(),
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

/// The value under a name, which is made where it is not there.
fn at<'m, T: Default>(map: &'m mut HashMap<Box<str>, T>, name: &str) -> &'m mut T {
    map.entry(name.into()).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: CostDay = CostDay(20_000);

    fn payer(uid: u32, agent: Option<&Arc<str>>) -> Payer<'_> {
        Payer {
            day: DAY,
            uid,
            agent,
            client: None,
            task: None,
            model: None,
        }
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
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [("", "", 1, 3), ("coder", "t", 2, 6)]
        );
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
            assert_eq!(
                (cost.calls, cost.lists, cost.listed_bytes),
                (0, times, times * bytes)
            );
        }
    }

    #[test]
    fn names_without_end_are_one_and_nobody_elses_loss() {
        let mut book = Book::default();
        for round in 0..3 {
            for name in 0..10_000 {
                book.count(
                    &payer(1, None),
                    tool("s", &format!("{round} {name}")),
                    &one(),
                );
            }
            let taken = book.take(DAY);
            assert!(taken.len() <= MAX_NAMES + 1, "{}", taken.len());
            assert_eq!(calls(&taken), 10_000, "all are counted");
        }
        book.count(&payer(1, None), tool("s", "0 7"), &one());
        book.count(&payer(2, None), tool("s", "other"), &one());
        let taken = book.take(DAY);
        assert!(
            taken.iter().all(|(key, _)| !key.tool.is_empty()),
            "{taken:?}"
        );
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
                let named =
                    |(key, _): &&(CostKey, CostSum)| key.server == server && !key.tool.is_empty();
                taken.iter().filter(named).count()
            };
            assert_eq!(of("other"), 100, "{uid}");
            assert!(of("endless") <= MAX_NAMES / 2);
        }
        assert!(book.names.all <= MAX_ALL);
        assert_eq!(book.names.all, book.names.servers.values().sum::<usize>());
    }

    #[test]
    fn a_client_that_names_itself_anew_each_time_makes_few_rows_and_hides_no_other() {
        let mut book = Book::default();
        let named = |book: &mut Book, name: &str, task: Option<u64>| {
            let client = Arc::from(name);
            let payer = Payer {
                client: Some(&client),
                task,
                ..payer(1, None)
            };
            for method in ["initialize", "tools/list"] {
                let line = CostLine {
                    method,
                    ..tool("colibri", "")
                };
                book.count(&payer, line, &one());
            }
            book.count(&payer, tool("s", "t"), &one());
        };
        named(&mut book, "honest", None);
        for round in 0..2 {
            for name in 0..20_000 {
                named(&mut book, &format!("{round} {name}"), Some(name));
            }
            named(&mut book, "honest", None);
            let taken = book.take(DAY);
            assert!(taken.len() <= MAX_NAMES + 3, "{}", taken.len());
            let clients: HashSet<&str> = taken.iter().map(|(key, _)| &*key.client).collect();
            assert!(clients.len() <= MAX_CLIENTS + 1, "{}", clients.len());
            let honest: Vec<_> = taken
                .into_iter()
                .filter(|(key, _)| key.client == "honest")
                .collect();
            assert_eq!(
                (honest.len(), calls(&honest)),
                (3, if round == 0 { 6 } else { 3 })
            );
        }
        let others = Arc::from("other");
        let payer = Payer {
            client: Some(&others),
            ..payer(2, None)
        };
        book.count(&payer, tool("s", "t"), &one());
        assert_eq!(book.take(DAY)[0].0.client, "other", "another's loss");
    }

    #[test]
    fn tasks_and_models_beyond_the_bound_are_counted_without() {
        let mut book = Book::default();
        let agent = Arc::from("coder");
        let asked = |book: &mut Book, model: &str, task: u64| {
            let model = Arc::from(model);
            let payer = Payer {
                task: Some(task),
                model: Some(&model),
                ..payer(1, Some(&agent))
            };
            book.count(&payer, CostLine::MODEL, &one());
        };
        for task in 1..=10_000 {
            asked(&mut book, "big", task);
        }
        let taken = book.take(DAY);
        assert!(taken.len() <= MAX_NAMES, "{}", taken.len());
        assert_eq!(calls(&taken), 10_000);
        let of = |model: &str, task: u64| {
            taken
                .iter()
                .find(|(key, _)| key.model == model && key.task == task)
        };
        assert!(of("big", 1).is_some() && of("big", 10_000).is_none());
        let together = of("", 0).unwrap();
        assert!(
            together.1.calls > 7000,
            "what has no room is counted, and without a price"
        );
        book.give_back(&taken);
        assert_eq!(calls(&book.take(DAY)), 10_000);
    }

    #[test]
    fn what_cannot_be_written_is_bounded_over_all_payers_and_days() {
        let mut book = Book::default();
        for day in 0..35 {
            for name in 0..2000 {
                let payer = Payer {
                    day: CostDay(day),
                    ..payer(1, None)
                };
                book.count(&payer, tool("s", &name.to_string()), &one());
            }
            let taken = book.take(CostDay(day));
            book.give_back(&taken);
        }
        let taken = book.take(CostDay(35));
        assert!(taken.len() <= MAX_ALL + 35, "{}", taken.len());
        assert_eq!(calls(&taken), 70_000);
        assert_eq!(
            (book.accounts.len(), book.payers.len(), book.names.all),
            (0, 0, 0),
            "other days are forgotten once they are written"
        );
    }
}
