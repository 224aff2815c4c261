//! Secrets of jailed servers: files that only root can read, opened for the entry that names them.

use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::path::Path;

use colibri_jail_helper::SECRETS_DIR;
use colibri_jail_helper::plan::{ConfinementPlan, VariableValue};
use colibri_jail_helper::refusal::HelperRefusal;

use nix::sys::stat::{Mode, fstat};

use crate::act::files::{self, RequiredOwner};
use crate::sys;

/// The most bytes of a secret; what stands in an environment is a token or a key, not a file.
const MAX_SECRET: usize = 64 << 10;

/// The server's whole environment, ready for execve(2). Overwritten when it is dropped.
pub(crate) struct Environment(Vec<Vec<u8>>);

impl Environment {
    /// Builds the environment of a plan, reading its secrets.
    ///
    /// # Errors
    /// A secret, or the directory of secrets, is missing, readable by others, too large, or holds a
    /// NUL.
    pub(crate) fn build(plan: &ConfinementPlan) -> Result<Self, HelperRefusal> {
        let directory = match plan.secrets().is_empty() {
            true => None,
            false => Some(open_secrets()?),
        };
        let mut environment = Self(Vec::new());
        for variable in &plan.env {
            let mut entry = variable.name.clone().into_bytes();
            entry.push(b'=');
            match (&variable.value, &directory) {
                (VariableValue::Plain(text), _) => entry.extend_from_slice(text.as_bytes()),
                (VariableValue::Secret(name), Some(directory)) => {
                    let mut secret = files::read_at(
                        directory,
                        SECRETS_DIR,
                        OsStr::new(name),
                        MAX_SECRET,
                        !Mode::S_IRUSR,
                    )?;
                    // A text editor ends a file with a newline, which no token has.
                    let end = secret
                        .iter()
                        .rposition(|b| *b != b'\n' && *b != b'\r')
                        .map_or(0, |last| last + 1);
                    entry.reserve_exact(end + 1);
                    entry.extend_from_slice(&secret[..end]);
                    sys::wipe(&mut secret);
                }
                (VariableValue::Secret(_), None) => {}
            }
            if entry.contains(&0) {
                sys::wipe(&mut entry);
                return Err(HelperRefusal::file(
                    "environment",
                    format!("the value of {} has a NUL in it", variable.name),
                ));
            }
            environment.0.push(entry);
        }
        Ok(environment)
    }

    /// The environment as C strings, for the child that is about to exec.
    ///
    /// # Errors
    /// None in practice: NULs were refused.
    pub(crate) fn to_c_strings(&self) -> Result<Vec<CString>, HelperRefusal> {
        self.0
            .iter()
            .map(|entry| {
                CString::new(entry.clone())
                    .map_err(|_| HelperRefusal::file("environment", "NUL in a value"))
            })
            .collect()
    }
}

fn open_secrets() -> Result<OwnedFd, HelperRefusal> {
    let directory = files::open_directory(Path::new(SECRETS_DIR), RequiredOwner::Root)?;
    let mode = fstat(&directory)
        .map_err(|error| HelperRefusal::system("secrets", "examine the directory", error))?
        .st_mode;
    if mode & 0o077 == 0 {
        return Ok(directory);
    }
    Err(HelperRefusal::file(
        "secrets",
        format!("{SECRETS_DIR}: is open to others than root; chmod it to 0700"),
    ))
}

impl Drop for Environment {
    fn drop(&mut self) {
        for entry in &mut self.0 {
            sys::wipe(entry);
        }
    }
}
