//! The page, written to a file.

use std::path::Path;
use std::process::ExitCode;

use serde_json::value::to_raw_value;

use super::arguments::HtmlArguments;
use super::data::{DAY, PageSource};
use super::day::Span;
use super::file;
use super::page::{mark, page_in_file};
use super::time::now;
use crate::commands::context::CommandContext;
use crate::failure::CommandError;
use colibri_text::visible;

/// Writes the page.
pub(crate) fn run(
    arguments: &HtmlArguments,
    path: &Path,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let until = arguments.until.unwrap_or_else(now);
    let span = Span {
        since: arguments.since.unwrap_or(until.saturating_sub(DAY)),
        until,
    };
    if span.since >= span.until {
        return Err(CommandError::Usage(
            "--since: it is not before the end".to_owned(),
        ));
    }
    let page = page_in_file(&PageSource::open(arguments, context, span, None)?.page)?;
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
