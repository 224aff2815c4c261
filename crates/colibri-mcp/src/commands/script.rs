//! `colibri-mcp script FILE`: runs a script that calls tools.

use std::fs;
use std::io::{self, Read as _};
use std::path::PathBuf;

use serde::Serialize;
use serde_json::value::to_raw_value;

use super::call::call_own;
use super::context::CommandContext;
use crate::failure::CommandError;
use colibri_api::script::{MAX_SCRIPT, MAX_SECONDS, RUN_SCRIPT};

/// The script.
#[derive(Debug, clap::Args)]
pub(crate) struct ScriptArguments {
    /// The file with the script; `-` reads it from stdin
    file: PathBuf,
    /// The most seconds that it may take [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SECONDS)))]
    timeout: Option<u32>,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &ScriptArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct RunScriptRequest {
        script: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout_s: Option<u32>,
    }
    let given = to_raw_value(&RunScriptRequest {
        script: read(arguments)?,
        timeout_s: arguments.timeout,
    });
    let given = given.map_err(|error| CommandError::Usage(error.to_string()))?;
    call_own(RUN_SCRIPT, &given, context)
}

/// The script's text.
fn read(arguments: &ScriptArguments) -> Result<String, CommandError> {
    let name = arguments.file.display();
    let wrong = |error: &dyn std::fmt::Display| CommandError::Usage(format!("{name}: {error}"));
    let reader: Box<dyn io::Read> = match arguments.file.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(fs::File::open(&arguments.file).map_err(|error| wrong(&error))?),
    };
    let mut text = String::new();
    reader
        .take(MAX_SCRIPT as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| wrong(&error))?;
    match text.len() {
        0 => Err(wrong(&"there is no script in it")),
        length if length > MAX_SCRIPT => Err(wrong(&"a script has at most 256 KiB")),
        _ => Ok(text),
    }
}
