//! `colibri-mcp glasspane --html FILE`: one page for a browser, with everything inside. It asks no
//! network for anything, and its content security policy lets nothing run but its own script.

mod arguments;
mod data;
mod day;
mod fields;
mod file;
mod lanes;
mod ledger;
mod model_costs;
mod names;
mod now;
mod page;
mod period;
mod pieces;
mod reasons;
mod table;
mod tables;
mod time;
mod verdict;
mod write;

pub(super) use arguments::HtmlArguments;
pub(super) use data::{DAY, LiveTerms, PageData, PagePresent, PageSource, list_tasks};
pub(super) use day::{Span, TrailNews};
pub(super) use page::{json, page_to_serve};
pub(super) use tables::tables;
pub(super) use time::now;
pub(super) use write::run;
