//! `colibri-mcp otlp`: calls, model requests, agents' runs and tasks as OpenTelemetry's spans.

use std::path::PathBuf;

use super::context::CommandContext;
use crate::failure::CommandError;
use crate::otlp::{self, ExportOptions};

/// The collector, and what it gets.
#[derive(Debug, clap::Args)]
pub(crate) struct OtlpArguments {
    /// The collector's URL for OTLP over HTTP, such as http://127.0.0.1:4318; header fields are in
    /// OTEL_EXPORTER_OTLP_HEADERS
    #[arg(
        long,
        value_name = "URL",
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        hide_env_values = true
    )]
    endpoint: String,
    /// The daemon's state directory, where the trail is [default: as of `trail`]
    #[arg(long, value_name = "DIR", env = "COLIBRI_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// The file that keeps how far the trail is exported [default: otlp.json in the state
    /// directory]
    #[arg(long, value_name = "FILE")]
    position: Option<PathBuf>,
    /// Begins with the first record of the trail, not with what is written next, if there is no
    /// position yet
    #[arg(long)]
    all: bool,
    /// Ends when all that is there is exported
    #[arg(long)]
    once: bool,
    /// Exports the metrics, too, which the daemon serves at this socket (--metrics-socket)
    #[arg(long, value_name = "PATH")]
    metrics: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: &OtlpArguments, context: &CommandContext) -> Result<(), CommandError> {
    let state_dir = context.state_dir(arguments.state_dir.clone())?;
    let position = arguments.position.clone();
    otlp::export(
        &ExportOptions {
            endpoint: arguments.endpoint.clone(),
            position: position.unwrap_or_else(|| state_dir.join("otlp.json")),
            state_dir,
            all: arguments.all,
            once: arguments.once,
            metrics: arguments.metrics.clone(),
        },
        context,
    )
}
