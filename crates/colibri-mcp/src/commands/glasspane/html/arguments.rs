//! The flags of the page.

use std::path::PathBuf;

use anyhow::Context as _;

use super::time;

/// The page, and what is on it.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct HtmlArguments {
    /// Writes one page for a browser to this file instead: lanes, paths, time line, costs and
    /// whether the trail verifies
    #[arg(long, value_name = "FILE", group = "page", conflicts_with_all = ["once", "no_color", "interval"])]
    pub html: Option<PathBuf>,
    /// Serves that page on 127.0.0.1 for as long as this runs, opens it in your browser, and keeps
    /// it up to date
    #[arg(long, group = "page", conflicts_with_all = ["html", "once", "no_color", "until", "servers"])]
    pub open: bool,
    /// Replaces FILE even if glasspane did not write it
    #[arg(long, requires = "html", conflicts_with = "open")]
    pub replace: bool,
    /// Calls not before this time, UTC: 2026-11-21 or 2026-11-21T22:30:00Z [default: 24 hours
    /// before the end]
    #[arg(long, value_name = "TIME", requires = "page", value_parser = when)]
    pub since: Option<u64>,
    /// Calls before this time [default: now]
    #[arg(long, value_name = "TIME", requires = "html", value_parser = when)]
    pub until: Option<u64>,
    /// The daemon's state directory, where the trail is [default: COLIBRI_STATE_DIR, else what the
    /// daemon says]
    #[arg(long, value_name = "DIR", requires = "page")]
    pub state_dir: Option<PathBuf>,
    /// Compares the trail with the heads in this log
    #[arg(long, value_name = "FILE", requires = "page")]
    pub syslog: Option<PathBuf>,
}

fn when(text: &str) -> anyhow::Result<u64> {
    time::millis(text).context("write 2026-11-21 or 2026-11-21T22:30:00Z (UTC)")
}
