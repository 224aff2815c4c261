//! Tools found by what is to be done: which of all that servers offer fits a few words best.
//!
//! The index is brought up to the table of tools by whoever searches it next: nobody pays for it
//! who does not search, and a search never sees an older table than lists show. Who may see what is
//! not known here.

mod document;
mod words;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

use self::words::NameWords;
use crate::catalog::{CatalogTable, Item};
use crate::summaries::SummaryTable;
use colibri_protocol::Feature;
use colibri_store::{StoreError, ToolIndex};
use parking_lot::Mutex;

/// The weight of a word that stands for one of the query.
const INSTEAD: f64 = 0.6;

/// The weight that each further word of the query that a tool has adds to that of all.
const SEVERAL: f64 = 0.2;

/// The bonus of a tool that only reads where the query asks, and its penalty where it neither asks
/// nor says to look.
const LOOKS: f64 = 0.2;

/// The bonus of a tool all of whose name's words the query has; of a part of them, that part of it.
const NAMED: f64 = 0.15;

/// The most places that one server has of so many while tools of others fit.
const MAX_PLACES: usize = 2;
const PLACES: usize = 5;

/// The tools that can be found.
#[derive(Default)]
pub struct Search {
    inner: Mutex<SearchInner>,
}

#[derive(Default)]
struct SearchInner {
    index: Option<ToolIndex>,
    /// The indexed table.
    table: Weak<CatalogTable>,
    /// The indexed summaries: the number that [`SummaryTable::come`] had.
    summaries: u64,
    /// Its tools by their numbers.
    tools: BTreeMap<i64, IndexedTool>,
    /// The number that the next one gets.
    next: i64,
}

/// A tool in the index.
struct IndexedTool {
    item: Weak<Item>,
    /// The summary that it has there.
    summary: Option<Arc<str>>,
    name: NameWords,
}

/// The hits of a search.
#[derive(Default)]
pub struct SearchHits {
    /// The tools that fit at all, the best first.
    pub tools: Vec<Arc<Item>>,
    /// Words of the query that were not looked for, because there were too many.
    pub left_out: usize,
}

impl Search {
    /// The tools of this table that fit a query, whatever bytes it has. Takes milliseconds, and
    /// longer where many tools are new: not to be called on a thread that serves clients.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn find(
        &self,
        table: &Arc<CatalogTable>,
        summaries: &SummaryTable,
        query: &str,
    ) -> Result<SearchHits, StoreError> {
        let (words, left_out) = words::asked(query);
        let mut inner = self.inner.lock();
        let index = inner.current(table, summaries)?;
        // What each tool is worth, and how many words of the query it has.
        let mut scores: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
        for word in &words {
            // The best of the word and of those that stand for it, never their sum: a tool that
            // says one thing in many ways fits no better.
            let mut worth: BTreeMap<i64, f64> = index.matching(word)?.into_iter().collect();
            for other in words::instead(word) {
                for (number, score) in index.matching(&other)? {
                    let known = worth.entry(number).or_default();
                    *known = known.max(INSTEAD * score);
                }
            }
            for (number, score) in worth {
                let (sum, words) = scores.entry(number).or_default();
                *sum += score;
                *words += 1.0;
            }
        }
        let looks = match (words::asks(query), words::looks(query)) {
            (true, _) => 1.0 + LOOKS,
            (false, true) => 1.0,
            (false, false) => 1.0 - LOOKS,
        };
        let forms = words::all_forms(&words);
        let mut found: Vec<(f64, Arc<Item>)> = scores
            .into_iter()
            .filter_map(|(number, (sum, words))| {
                let tool = inner.tools.get(&number)?;
                let item = tool.item.upgrade()?;
                let fits = if tool.name.looks { looks } else { 1.0 };
                let named = 1.0 + NAMED * tool.name.named(&forms);
                Some((sum * (1.0 + SEVERAL * (words - 1.0)) * fits * named, item))
            })
            .collect();
        // What is worth the same stands in the order of lists.
        found.sort_by(|(one, a), (other, b)| {
            other.total_cmp(one).then_with(|| a.exposed.cmp(&b.exposed))
        });
        Ok(SearchHits {
            tools: found.into_iter().map(|(_, item)| item).collect(),
            left_out,
        })
    }
}

/// The words of a text in all forms that they may be a form of.
pub(crate) fn word_forms(text: &str) -> HashSet<String> {
    words::all_forms(&words::words(text))
}

/// The first word of a tool's name: what it does, as a rule.
pub(crate) fn first_word(name: &str) -> Option<String> {
    words::words(name).into_iter().next()
}

/// The words of a tool's name after its first, in all their forms: to what it does something, as a
/// rule.
pub(crate) fn object_words(name: &str) -> HashSet<String> {
    let objects: Vec<String> = words::words(name).into_iter().skip(1).collect();
    words::all_forms(&words::asked(&objects.join(" ")).0)
}

/// The first `limit` of these, the best first, but that of each five places a server has no more
/// than two while tools of others fit: one that offers a tool for everything keeps nobody else from
/// being found.
pub(crate) fn best_of_several<'i, T>(
    ranked: &[&'i T],
    limit: usize,
    server: impl Fn(&'i T) -> &'i str,
) -> Vec<&'i T> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut waiting, mut best) = (ranked.to_vec(), Vec::new());
    while best.len() < limit && !waiting.is_empty() {
        let most = MAX_PLACES * (best.len() / PLACES + 1);
        let has_place = |server| places.get(server).is_none_or(|taken| *taken < most);
        let next = waiting.iter().position(|item| has_place(server(*item)));
        let next = waiting.remove(next.unwrap_or(0));
        *places.entry(server(next)).or_default() += 1;
        best.push(next);
    }
    best
}

impl SearchInner {
    /// The index of this table with these summaries: what has changed since it was last looked at
    /// is changed in it.
    fn current(
        &mut self,
        table: &Arc<CatalogTable>,
        summaries: &SummaryTable,
    ) -> Result<&ToolIndex, StoreError> {
        let index = match &mut self.index {
            Some(index) => index,
            none => none.insert(ToolIndex::new()?),
        };
        let come = *summaries.come().borrow();
        let are_same = self.summaries == come;
        if are_same && self.table.as_ptr() == Arc::as_ptr(table) {
            return Ok(index);
        }
        let offered: HashSet<*const Item> = table.offered(Feature::Tool).map(Arc::as_ptr).collect();
        let stays = |tool: &IndexedTool| {
            let summary_of = |item: Arc<Item>| summaries.of(&item);
            offered.contains(&tool.item.as_ptr())
                && (are_same
                    || tool
                        .item
                        .upgrade()
                        .map(summary_of)
                        .is_some_and(|summary| summary == tool.summary))
        };
        let (stay, gone): (Vec<_>, Vec<_>) = self.tools.iter().partition(|(_, tool)| stays(tool));
        let stay: HashSet<*const Item> = stay
            .into_iter()
            .map(|(_, tool)| tool.item.as_ptr())
            .collect();
        let gone: Vec<i64> = gone.into_iter().map(|(number, _)| *number).collect();
        let new = table
            .offered(Feature::Tool)
            .filter(|item| !stay.contains(&Arc::as_ptr(item)));
        let new: Vec<_> = (self.next..)
            .zip(new)
            .map(|(number, item)| (number, item, summaries.of(item)))
            .collect();
        let fields: Vec<_> = new
            .iter()
            .map(|(number, item, summary)| (*number, document::fields(item, summary.as_deref())))
            .collect();
        index.change(&gone, &fields)?;
        for number in gone {
            self.tools.remove(&number);
        }
        self.next += new.len() as i64;
        self.tools
            .extend(new.into_iter().map(|(number, item, summary)| {
                let tool = IndexedTool {
                    item: Arc::downgrade(item),
                    summary,
                    name: NameWords::of(&item.own),
                };
                (number, tool)
            }));
        (self.table, self.summaries) = (Arc::downgrade(table), come);
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::best_of_several;

    #[test]
    fn a_server_has_two_places_while_others_fit() {
        let ranked = ["a1", "a2", "a3", "a4", "b1", "c1", "c2", "c3"];
        let ranked: Vec<&str> = ranked.to_vec();
        let all: Vec<&&str> = ranked.iter().collect();
        let best = |limit| {
            let best = best_of_several(&all, limit, |name| &name[..1]);
            best.into_iter().copied().collect::<Vec<_>>()
        };
        assert_eq!(best(5), ["a1", "a2", "b1", "c1", "c2"]);
        assert_eq!(best(7), ["a1", "a2", "b1", "c1", "c2", "a3", "a4"]);
        assert_eq!(best(9), ["a1", "a2", "b1", "c1", "c2", "a3", "a4", "c3"]);
        assert_eq!(best(1), ["a1"]);
        assert_eq!(best(0), [""; 0]);
    }
}
