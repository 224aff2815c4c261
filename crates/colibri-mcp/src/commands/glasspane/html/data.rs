//! The content of the page, and where it is from. All text of others in it has been made visible
//! and is bounded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::arguments::HtmlArguments;
use super::day::{PeriodReader, Span, TrailNews};
use super::ledger::{self, CostTable};
use super::model_costs::ModelCosts;
use super::names::NAME;
use super::now::Now;
use super::period::ReportPeriod;
use super::time::now;
use super::verdict::TrailVerdict;
use crate::commands::context::CommandContext;
use crate::commands::glasspane::feed::look;
use crate::commands::glasspane::model::GlasspaneState;
use crate::connection::{DaemonConnection, RequestError};
use crate::failure::CommandError;
use crate::prices::PriceList;
use crate::records;
use colibri_api::{Task, Tasks};
use colibri_text::{brief, visible};
use colibri_trail::directory;
use serde_json::json;

/// The time before its end at which the shown period begins, where nobody names one. Milliseconds.
pub(crate) const DAY: u64 = 86_400_000;
/// The newest tasks that the daemon is asked for: a page of its list.
const TASKS: u32 = 100;

/// The page's content.
#[derive(Debug, Serialize)]
pub(crate) struct PageData {
    pub head: PageHead,
    pub record: PageRecord,
    pub present: PagePresent,
}

/// The part that stays.
#[derive(Debug, Serialize)]
pub(crate) struct PageHead {
    pub host: String,
    pub version: &'static str,
    /// Milliseconds since the epoch.
    pub made: u64,
    /// Empty: it is not known.
    pub state_dir: String,
    pub(super) verdict: Option<TrailVerdict>,
    pub(super) ledger: Option<CostTable>,
    /// The reason for which tokens are shown without money.
    pub(super) prices_trouble: Option<String>,
    /// Of a page that is served.
    pub live: Option<LiveTerms>,
}

/// The terms on which a served page answers for a person.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LiveTerms {
    /// The value that stands beside each answer.
    pub secret: String,
    /// The reason for which no call can be approved from the page.
    pub no_approval: Option<&'static str>,
}

/// The part that the trail has.
#[derive(Debug, Serialize)]
pub(crate) struct PageRecord {
    pub(super) day: Option<ReportPeriod>,
    /// The reason for which the trail is not there.
    pub trail_trouble: Option<String>,
}

/// The part that the daemon says.
#[derive(Debug, Serialize)]
pub(crate) struct PagePresent {
    pub(super) now: Option<Now>,
    /// The reason for which nothing is known of the present.
    pub now_trouble: Option<String>,
}

/// The trail, and the daemon, from which a page is made.
pub(crate) struct PageSource {
    pub context: CommandContext,
    pub trail: Option<TrailSource>,
    pub page: PageData,
    pub tasks: Vec<Task>,
}

/// The trail that is read on.
pub(crate) struct TrailSource {
    dir: PathBuf,
    prices: Option<Arc<PriceList>>,
    reader: PeriodReader,
}

impl TrailSource {
    /// The calls since `since` and before `until`, as far as they are written.
    fn open(
        dir: PathBuf,
        span: Span,
        prices: Option<Arc<PriceList>>,
    ) -> Result<TrailSource, CommandError> {
        let mut reader = PeriodReader::new(&dir, span, ModelCosts::new(prices.clone()));
        let read = reader.read();
        match read {
            Ok(_) => Ok(TrailSource {
                dir,
                prices,
                reader,
            }),
            Err(source) => Err(CommandError::File { path: dir, source }),
        }
    }

    /// Begins again with a later time.
    pub(crate) fn restart(&mut self, span: Span) {
        self.reader = PeriodReader::new(&self.dir, span, ModelCosts::new(self.prices.clone()));
    }

    /// Takes in what was recorded since the last time.
    pub(crate) fn read(&mut self) -> Result<TrailNews, CommandError> {
        let path = &self.dir;
        self.reader.read().map_err(|source| CommandError::File {
            path: path.clone(),
            source,
        })
    }

    /// The part of the page that it has.
    pub(crate) fn part(&mut self, until: u64) -> PageRecord {
        PageRecord {
            day: Some(self.reader.period(until)),
            trail_trouble: None,
        }
    }
}

impl PagePresent {
    /// The part of the page that the daemon says, or the reason for which it says nothing.
    pub(crate) fn of(seen: Result<&GlasspaneState, &CommandError>, tasks: &[Task]) -> PagePresent {
        PagePresent {
            now: seen.ok().map(|seen| Now::of(seen, tasks)),
            now_trouble: seen.err().map(shown),
        }
    }
}

impl PageSource {
    /// Reads everything once.
    ///
    /// # Errors
    /// Neither the trail nor the daemon can be read.
    pub(crate) fn open(
        arguments: &HtmlArguments,
        context: &CommandContext,
        span: Span,
        live: Option<LiveTerms>,
    ) -> Result<PageSource, CommandError> {
        let seen = context.connect().and_then(|mut connection| {
            let seen = look(&mut connection, None)?;
            let tasks = match list_tasks(&mut connection) {
                // A board that cannot be read hides nothing else.
                Err(CommandError::Request(
                    RequestError::Refused { .. } | RequestError::Tool(_),
                )) => Vec::new(),
                tasks => tasks?,
            };
            Ok((seen, tasks, ledger::read(&mut connection, span.since)?))
        });
        let file = seen
            .as_ref()
            .ok()
            .and_then(|(_, _, (_, prices))| prices.as_deref());
        let prices = file
            .map(|file| PriceList::read(Path::new(file)))
            .transpose();
        let (prices, prices_trouble) = match prices {
            Ok(prices) => (prices.flatten().map(Arc::new), None),
            Err(error) => (None, Some(brief(&error.to_string(), 4 * NAME))),
        };
        // A flag that takes this variable by itself would want --html with it.
        let variable = std::env::var_os("COLIBRI_STATE_DIR").filter(|value| !value.is_empty());
        let given = arguments
            .state_dir
            .clone()
            .or_else(|| variable.map(PathBuf::from));
        let state_dir = context.state_dir(given);
        let shown_dir = state_dir.as_ref().map_or_else(
            |_| String::new(),
            |dir| brief(&dir.to_string_lossy(), 4 * NAME),
        );
        let trail = state_dir.and_then(|state_dir| {
            let key = records::verifier(&state_dir)?;
            let witnesses = records::NamedWitnesses {
                log: arguments.syslog.as_deref(),
                ..Default::default()
            };
            let report = records::report(&state_dir, None, &witnesses, key.as_ref())?;
            let verdict = TrailVerdict::of(report, key.is_some(), arguments.syslog.is_some());
            Ok((
                verdict,
                TrailSource::open(directory(&state_dir), span, prices)?,
            ))
        });
        let (verdict, trail, record) = match (trail, &seen) {
            (Ok((verdict, mut trail)), _) => {
                let record = trail.part(span.until.min(now()));
                (Some(verdict), Some(trail), record)
            }
            // Without either there is nothing to show.
            (Err(failure), Err(trouble)) => {
                eprintln!(
                    "colibri-mcp: the daemon tells nothing: {}",
                    visible(&trouble.to_string())
                );
                return Err(failure);
            }
            (Err(failure), Ok(_)) => {
                let trail_trouble = Some(shown(&failure));
                (
                    None,
                    None,
                    PageRecord {
                        day: None,
                        trail_trouble,
                    },
                )
            }
        };
        let (present, tasks, ledger) = match seen {
            Ok((seen, tasks, (ledger, _))) => (PagePresent::of(Ok(&seen), &tasks), tasks, ledger),
            Err(failure) => (PagePresent::of(Err(&failure), &[]), Vec::new(), None),
        };
        let host = nix::unistd::gethostname().unwrap_or_default();
        let head = PageHead {
            host: brief(&host.to_string_lossy(), NAME),
            version: env!("CARGO_PKG_VERSION"),
            made: now(),
            state_dir: shown_dir,
            verdict,
            ledger,
            prices_trouble,
            live,
        };
        Ok(PageSource {
            context: context.clone(),
            trail,
            page: PageData {
                head,
                record,
                present,
            },
            tasks,
        })
    }
}

/// The newest tasks.
///
/// # Errors
/// The connection is lost, or the answer cannot be read.
pub(crate) fn list_tasks(connection: &mut DaemonConnection) -> Result<Vec<Task>, CommandError> {
    let asked = json!({ "limit": TASKS });
    let (answer, _) = connection.own_tool::<Tasks>("colibri_list_tasks", &asked)?;
    Ok(answer.tasks)
}

fn shown(failure: &CommandError) -> String {
    brief(&failure.to_string(), 4 * NAME)
}
