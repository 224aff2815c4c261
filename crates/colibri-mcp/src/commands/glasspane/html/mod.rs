//! `colibri-mcp glasspane --html FILE`: one page for a browser, with everything inside. It asks no network for anything,
//! and its content security policy lets nothing run but its own script.

mod day;
mod file;
mod ledger;
mod now;
mod time;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde_json::value::to_raw_value;
use sha2::{Digest as _, Sha256};

use super::super::context::CommandContext;
use super::feed::look;
use crate::failure::CommandError;
use crate::records;
use colibri_text::{brief, visible};
use colibri_trail::{Report, directory};
use day::{NAME, ReportPeriod, Span};
use ledger::CostTable;
use now::Now;

/// The page around its style, its data and its script. `@` stands for each, in the order of [`page`].
const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = concat!(include_str!("kit.js"), include_str!("script.js"));
/// The end of the part of a page that is always the same: a file is recognised by it.
const MARK_END: &str = "content=\"colibri-mcp glasspane\">";
/// The time before its end at which the shown period begins, where nobody names one. Milliseconds.
const DAY: u64 = 86_400_000;
/// The most faults and notes of the trail that are shown.
const MAX_FAULTS: usize = 20;

/// The page, and what is on it.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct HtmlArguments {
    /// Writes one page for a browser to this file instead: paths, time line, costs and whether the trail verifies
    #[arg(long, value_name = "FILE", conflicts_with_all = ["once", "no_color", "interval"])]
    pub html: Option<PathBuf>,
    /// Replaces FILE even if glasspane did not write it
    #[arg(long, requires = "html")]
    replace: bool,
    /// Calls not before this time, UTC: 2026-11-21 or 2026-11-21T22:30:00Z [default: 24 hours before the end]
    #[arg(long, value_name = "TIME", requires = "html", value_parser = when)]
    since: Option<u64>,
    /// Calls before this time [default: now]
    #[arg(long, value_name = "TIME", requires = "html", value_parser = when)]
    until: Option<u64>,
    /// The daemon's state directory, where the trail is [default: COLIBRI_STATE_DIR, else what the daemon says]
    #[arg(long, value_name = "DIR", requires = "html")]
    state_dir: Option<PathBuf>,
    /// Compares the trail with the heads in this log
    #[arg(long, value_name = "FILE", requires = "html")]
    syslog: Option<PathBuf>,
}

fn when(text: &str) -> anyhow::Result<u64> {
    time::millis(text).context("write 2026-11-21 or 2026-11-21T22:30:00Z (UTC)")
}

/// The content of the page. All text of others in it has been made visible and is bounded.
#[derive(Debug, Serialize)]
struct Data {
    host: String,
    version: &'static str,
    /// Milliseconds since the epoch.
    made: u64,
    /// Empty: it is not known.
    state_dir: String,
    day: Option<ReportPeriod>,
    verdict: Option<TrailVerdict>,
    /// The reason for which the trail is not there.
    trail_trouble: Option<String>,
    now: Option<Now>,
    ledger: Option<CostTable>,
    /// The reason for which nothing is known of the present.
    now_trouble: Option<String>,
}

/// The verdict of `trail verify`.
#[derive(Debug, Serialize)]
struct TrailVerdict {
    sound: bool,
    fault_count: u64,
    faults: Vec<String>,
    note_count: usize,
    notes: Vec<String>,
    records: u64,
    first_record: u64,
    segments: u64,
    checkpoints: u64,
    has_key: bool,
    head: String,
    root: Option<String>,
    promised: u64,
    witnessed: bool,
    vouched_by: Vec<colibri_trail::TrailWitness>,
}

/// Writes the page.
pub(super) fn run(arguments: &HtmlArguments, path: &Path, context: &CommandContext) -> Result<ExitCode, CommandError> {
    let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let made = u64::try_from(made.as_millis()).unwrap_or(u64::MAX);
    let until = arguments.until.unwrap_or(made);
    let span = Span {
        since: arguments.since.unwrap_or(until.saturating_sub(DAY)),
        until,
    };
    if span.since >= span.until {
        return Err(CommandError::Usage("--since: it is not before the end".to_owned()));
    }
    let seen = context.connect().and_then(|mut connection| {
        let seen = look(&mut connection, None)?;
        Ok((seen, ledger::read(&mut connection, span.since)?))
    });
    // A flag that takes this variable by itself would want --html with it.
    let variable = std::env::var_os("COLIBRI_STATE_DIR").filter(|value| !value.is_empty());
    let given = arguments.state_dir.clone().or_else(|| variable.map(PathBuf::from));
    let state_dir = context.state_dir(given);
    let shown_dir = state_dir
        .as_ref()
        .map_or_else(|_| String::new(), |dir| brief(&dir.to_string_lossy(), 4 * NAME));
    let trail = state_dir.and_then(|state_dir| {
        let key = records::verifier(&state_dir)?;
        let report = records::report(&state_dir, None, arguments.syslog.as_deref(), key.as_ref())?;
        let verdict = TrailVerdict::of(report, key.is_some(), arguments.syslog.is_some());
        let path = directory(&state_dir);
        let day = day::read(&path, span).map_err(|source| CommandError::File { path, source })?;
        Ok((verdict, day))
    });
    let (seen, now_trouble) = parted(seen);
    let (trail, trail_trouble) = match (trail, &seen) {
        // Without either there is nothing to show.
        (Err(failure), None) => {
            let why = format!("the daemon tells nothing: {}", now_trouble.unwrap_or_default());
            eprintln!("colibri-mcp: {}", visible(&why));
            return Err(failure);
        }
        (trail, _) => parted(trail),
    };
    let (verdict, day) = trail.unzip();
    let (seen, ledger) = seen.unzip();
    let host = nix::unistd::gethostname().unwrap_or_default();
    let data = Data {
        host: brief(&host.to_string_lossy(), NAME),
        version: env!("CARGO_PKG_VERSION"),
        made,
        state_dir: shown_dir,
        day,
        verdict,
        trail_trouble,
        now: seen.as_ref().map(Now::of),
        ledger: ledger.flatten(),
        now_trouble,
    };
    let page = page(&serde_json::to_string(&data).map_err(|error| CommandError::Machine(error.to_string()))?);
    file::write(path, &page, mark(), arguments.replace)?;
    let shown = path.display().to_string();
    let written = to_raw_value(&serde_json::json!({ "file": shown, "bytes": page.len() }));
    let written = written.map_err(|error| CommandError::Machine(error.to_string()))?;
    context.print(&written, || {
        format!(
            "wrote {}, {} KiB: open it in a browser",
            visible(&shown),
            page.len() / 1024
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The value, or the reason for which there is none.
fn parted<T>(outcome: Result<T, CommandError>) -> (Option<T>, Option<String>) {
    match outcome {
        Ok(there) => (Some(there), None),
        Err(failure) => (None, Some(brief(&failure.to_string(), 4 * NAME))),
    }
}

impl TrailVerdict {
    fn of(report: Report, has_key: bool, witnessed: bool) -> TrailVerdict {
        let place = |fault: &colibri_trail::TrailFault| {
            let segment = fault.segment.as_deref().unwrap_or("the whole trail");
            let line = fault.line.map_or_else(String::new, |line| format!(" line {line}"));
            brief(&format!("{segment}{line}: {}: {}", fault.kind, fault.what), 4 * NAME)
        };
        TrailVerdict {
            sound: report.is_sound(),
            fault_count: report.fault_count,
            faults: report.faults.iter().take(MAX_FAULTS).map(place).collect(),
            note_count: report.notes.len(),
            notes: (report.notes.iter().take(MAX_FAULTS))
                .map(|note| brief(note, 4 * NAME))
                .collect(),
            records: report.records,
            first_record: report.first_record,
            segments: report.segments,
            checkpoints: report.checkpoints,
            has_key,
            head: brief(&report.head, NAME),
            root: report.root,
            promised: report.promised_records,
            witnessed,
            vouched_by: report.vouched_by,
        }
    }
}

/// The beginning of every page.
fn mark() -> &'static str {
    let end = PAGE.find(MARK_END).map_or(PAGE.len(), |at| at + MARK_END.len());
    &PAGE[..end]
}

/// The page that shows this JSON.
fn page(data: &str) -> String {
    let hash = |text: &str| format!("'sha256-{}'", BASE64.encode(Sha256::digest(text)));
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    // These stand in strings alone, so an escape says the same: nothing in the data can end its element or begin another.
    let data = colibri_text::json(data);
    let data = data
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026");
    let mut parts = PAGE.split('@');
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len() + policy.len());
    page.push_str(parts.next().unwrap_or_default());
    for (inside, after) in [&*policy, STYLE, &data, SCRIPT].into_iter().zip(parts) {
        page.push_str(inside);
        page.push_str(after);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_data_ends_its_element() {
        let evil = "</script><script>alert(1)</script><!--\u{2028}\u{202e}\u{0}&amp;@\"\\";
        let page = page(&serde_json::json!({ evil: [evil] }).to_string());
        assert_eq!(page.matches("<script").count(), 2, "data and script");
        assert_eq!(page.matches("</script").count(), 2);
        assert!(!page.contains("alert(1)</") && !page.contains(['\u{2028}', '\u{202e}', '\0']));
        let (_, data) = page.split_once("id=\"data\">").unwrap();
        let (data, rest) = data.split_once("</script>").unwrap();
        let read: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(read[evil][0], evil);
        assert!(rest.contains(SCRIPT) && page.contains(STYLE));
    }

    #[test]
    fn whatever_is_in_the_data_is_on_the_page() {
        let sources = [
            include_str!("mod.rs"),
            include_str!("now.rs"),
            include_str!("ledger.rs"),
            include_str!("day.rs"),
        ];
        let forms = sources.iter().flat_map(|source| source.split("Serialize)]\n").skip(1));
        let fields = forms.flat_map(|form| form.lines().take_while(|line| *line != "}"));
        let fields: Vec<&str> = fields
            .filter(|line| !line.contains("//"))
            .filter_map(|line| line.trim().split_once(": ")?.0.split(' ').next_back())
            .collect();
        assert!(fields.len() > 60 && fields.contains(&"left_out"), "{fields:?}");
        for field in fields {
            let used = [format!(".{field}"), format!(" {field},"), format!(" {field} }}")];
            assert!(used.iter().any(|used| SCRIPT.contains(used)), "{field}");
        }
    }

    #[test]
    fn script_and_style_fit_their_places() {
        assert_eq!(PAGE.matches('@').count(), 4);
        assert!(page("{}").starts_with(mark()) && mark().ends_with(MARK_END));
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("<!--") && !STYLE.contains("</style"));
        // Text is set as text, and nothing is asked for. A namespace is a name.
        let script = SCRIPT.replace("\"http://www.w3.org/2000/svg\"", "");
        for never in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "fetch(",
            "http:",
        ] {
            assert!(!script.contains(never), "{never}");
        }
        for never in ["url(", "@import", "@font-face"] {
            assert!(!STYLE.contains(never), "{never}");
        }
    }
}
