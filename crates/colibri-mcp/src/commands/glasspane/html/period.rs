//! The calls of a period as the page has them: counted by path and piece of time and by tool, and
//! one by one where a call was refused, failed or waited.

use serde::Serialize;

use super::lanes::{Lanes, TaskHistory};
use super::model_costs::ModelCostTable;
use super::names::Name;
use super::table::PageTable;
use super::time::utc;

/// The reason for which a call is listed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CallMarkReason {
    /// Colibri did not let it pass.
    Refused,
    /// It went wrong.
    Failed,
    /// It waited: for a person, or for its next attempt.
    Waited,
}

/// The facts of a period. Text in it has been made visible and is bounded.
#[derive(Debug, Serialize)]
pub(super) struct ReportPeriod {
    pub since: u64,
    pub until: u64,
    /// The beginning of the first piece of time that has calls, and the length of each,
    /// milliseconds.
    pub first: u64,
    pub step: u64,
    pub names: Vec<String>,
    pub lanes: Lanes,
    /// The newest first.
    pub tasks: Vec<TaskHistory>,
    pub model_costs: ModelCostTable,
    /// Caller, agent or client or nothing, server, the server's id as it is known elsewhere.
    pub paths: Vec<CallPath>,
    /// Path, piece of time, and the calls that went well, that failed, that were refused.
    pub cells: Vec<[u64; 5]>,
    pub tools: Vec<ToolFigures>,
    /// Reasons of calls that did not go well, most first.
    pub codes: Vec<(String, u64)>,
    /// Oldest first.
    pub marks: Vec<CallMark>,
    /// The number of each kind: refused, failed, waited.
    pub marked: [u64; 3],
    /// Calls that have no end in this time.
    pub open: u64,
    /// Calls and questions whose end, if it came, found nothing of them any more: there were too
    /// many before it.
    pub forgotten: u64,
    /// True if paths or tools were counted together.
    pub together: bool,
    /// The most calls that are listed one by one, of each kind.
    pub most_marks: usize,
}

/// The way that calls take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct CallPath {
    pub caller: Name,
    /// The agent, or the client's name for itself.
    pub agent: Option<Name>,
    pub server: Name,
}

/// The figures of a tool's calls on one path.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct ToolFigures {
    pub path: usize,
    pub name: Name,
    pub calls: u64,
    pub failed: u64,
    pub refused: u64,
    /// Bytes of arguments.
    pub asked: u64,
    /// Bytes of answers.
    pub answered: u64,
    /// Milliseconds of all together.
    pub ms: f64,
}

/// A call that is told by itself.
#[derive(Debug, Serialize)]
pub(super) struct CallMark {
    pub kind: CallMarkReason,
    /// Its beginning and its duration, milliseconds.
    pub at: u64,
    pub ms: u64,
    pub path: usize,
    pub tool: Name,
    /// A sentence, and the code that it explains; empty: it explains none.
    pub why: Name,
    pub code: Name,
    /// The number of the record that says so.
    pub n: u64,
}

impl ReportPeriod {
    /// Its tables.
    pub(super) fn tables(&self) -> Vec<PageTable> {
        let name = |name: Name| self.names[name].clone();
        let path = |path: usize| {
            let CallPath {
                caller,
                agent,
                server,
            } = &self.paths[path];
            let who = agent.map_or(name(*caller), |agent| {
                format!("{} {}", name(*caller), name(agent))
            });
            (who, name(*server))
        };
        let mark = |mark: &CallMark| {
            let (who, server) = path(mark.path);
            let what = format!("{server} {}", name(mark.tool));
            let kind = format!("{:?}", mark.kind).to_lowercase();
            vec![
                utc(mark.at),
                kind,
                who,
                what,
                name(mark.why),
                name(mark.code),
            ]
        };
        let mut tools: Vec<_> = self.tools.iter().collect();
        tools.sort_by_key(|tool| std::cmp::Reverse(tool.answered));
        let tool = |tool: &ToolFigures| {
            let (who, server) = path(tool.path);
            let numbers = [tool.calls, tool.failed, tool.refused, tool.answered]
                .map(|number| number.to_string());
            [
                vec![who, format!("{server} {}", name(tool.name))],
                numbers.to_vec(),
            ]
            .concat()
        };
        vec![
            self.lanes.table(&self.names),
            PageTable::of(
                "Refused, failed, waited",
                &["Time (UTC)", "What", "Who", "Server, tool", "Why", "Code"],
                self.marks.iter().rev().map(mark),
            ),
            PageTable::of(
                "Cost by tool",
                &[
                    "Who",
                    "Server, tool",
                    "Calls",
                    "Failed",
                    "Refused",
                    "Bytes of answers",
                ],
                tools.into_iter().map(tool),
            ),
            self.model_costs.table(&self.names),
        ]
    }
}
