//! The way of others' servers into ours: the plan of the writing ([`plan`]), its packages
//! ([`package`], [`lock`]), and the writing ([`write`]). Nothing is written before a person agreed.

mod answers;
mod bundle;
mod comparison;
mod files;
mod lock;
mod npm;
mod package;
mod plan;
mod pypi;
mod scope;
mod shown;
mod tools;
mod write;

pub(crate) use answers::{InputAnswers, ask, value_of};
pub(crate) use bundle::fetch as fetch_bundle;
pub(crate) use comparison::is_same;
pub(crate) use files::{check_files, check_installed, discard, installed};
pub(crate) use lock::PackageLock;
pub(crate) use package::PackageTools;
pub(crate) use plan::{InstallPlan, plan};
pub(crate) use scope::InstallScope;
pub(crate) use shown::{show, show_entry};
pub(crate) use tools::{find as find_program, is_executable};
pub(crate) use write::{
    AGENTS, ChangeReport, EntryDigests, RegistryFile, WriteOutcome, absent_secrets, agree_to,
    agree_to_shown, agreements, already, belongings, digests, forget, key_path, put_package,
    put_secret, registered, reload, remove, rewrite, tidy, uninstall, write,
};
