//! Lists what the chibi bridge offers, or calls one of it: `tools [mcp://SERVER/TOOL [ARGUMENTS]]`.

use std::path::PathBuf;
use std::process::ExitCode;

use colibri_client::{
    ClientError, execute_mcp_tool, load_mcp_tools, mcp_tool_from_info, parse_mcp_path,
};
use serde_json::Value;

fn run(words: &[String]) -> Result<(), ClientError> {
    let home =
        std::env::var_os("CHIBI_HOME").map_or_else(|| PathBuf::from(".chibi"), PathBuf::from);
    let Some(path) = words.first() else {
        for tool in load_mcp_tools(&home).unwrap_or_default() {
            println!("{}\t{}\t{}", tool.name, tool.path, tool.description);
        }
        return Ok(());
    };
    let (server, name) = parse_mcp_path(path).ok_or_else(|| ClientError::NotATool(path.clone()))?;
    let arguments = words.get(1).map_or("{}", String::as_str);
    let arguments = serde_json::from_str(arguments)
        .map_err(|error| ClientError::Unreadable(error.to_string()))?;
    let tool = mcp_tool_from_info(server, name, "", Value::Null);
    println!("{}", execute_mcp_tool(&tool, &arguments, &home)?);
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
