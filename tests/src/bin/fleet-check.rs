//! Reads a board with its journal, and the trails of its hosts, and names each task that was lost,
//! done twice or forged, or has not ended: `fleet-check SOCKET_DIRECTORY DATABASE
//! TRAIL_DIRECTORY…`. Exit status 1 if there are any.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use colibri_tests::fleet::check;
use colibri_tests::run_sql;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [socket, database, trails @ ..] = words.as_slice() else {
        eprintln!("usage: fleet-check SOCKET_DIRECTORY DATABASE TRAIL_DIRECTORY...");
        return ExitCode::from(64);
    };
    let trails: Vec<PathBuf> = trails.iter().map(PathBuf::from).collect();
    match check(
        &|sql| run_sql(Path::new(socket), None, database, sql),
        &trails,
    ) {
        Ok(report) => {
            println!("{report}");
            ExitCode::from(u8::from(!report.faults.is_empty()))
        }
        Err(why) => {
            eprintln!("the board cannot be read: {why}");
            ExitCode::from(69)
        }
    }
}
