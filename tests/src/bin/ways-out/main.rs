//! Tries to get out of the sandbox of scripts: `ways-out STEPS WAY` gives up the rights that
//! `STEPS` names, as `colibri-script` does, and tries one way. It writes `open`, or the error; or
//! it is killed.
//!
//! `ways-out list` writes the names of the ways.

mod sys;

use std::process::ExitCode;

use colibri_api::script::ScriptLimits;
use colibri_script::sandbox::{self, parts};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (steps, way) = match &*arguments.iter().map(String::as_str).collect::<Vec<_>>() {
        ["list"] => {
            sys::WAYS.iter().for_each(|(name, _)| println!("{name}"));
            return ExitCode::SUCCESS;
        }
        [steps, way] => (steps.to_string(), way.to_string()),
        _ => return ExitCode::from(64),
    };
    let Some((_, attempt)) = sys::WAYS.iter().find(|(name, _)| *name == way) else {
        return ExitCode::from(66);
    };
    let prepared = match &*steps {
        "none" => Ok(()),
        "all" => sandbox::enter(),
        "limits" => sandbox::bound_resources(&ScriptLimits::DEFAULT),
        "descriptors" => sandbox::close_descriptors(),
        "manners" => parts::be_courteous(),
        #[cfg(target_os = "linux")]
        "privileges" => parts::refuse_privileges(),
        #[cfg(target_os = "linux")]
        "files" => parts::grant_no_files().map(drop),
        #[cfg(target_os = "linux")]
        "calls" => parts::refuse_privileges().and_then(|()| parts::filter_calls()),
        #[cfg(target_os = "freebsd")]
        "pipes" => parts::limit_pipes(),
        #[cfg(target_os = "freebsd")]
        "capabilities" => parts::enter_capability_mode(),
        _ => return ExitCode::from(64),
    };
    if let Err(error) = prepared {
        eprintln!("{error:#}");
        return ExitCode::from(71);
    }
    let outcome = match attempt() {
        done if done >= 0 => format!("open {done}\n"),
        _ => format!("{}\n", std::io::Error::last_os_error()),
    };
    sys::write_and_end(outcome.as_bytes())
}
