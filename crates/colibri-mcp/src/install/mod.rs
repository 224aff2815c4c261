//! How a server that others have becomes one of ours: what it would write ([`plan`]), what its packages are ([`npm`],
//! [`pypi`]), and the writing ([`write`]). Nothing is written before a person agreed.

mod answers;
mod bundle;
mod files;
mod npm;
mod plan;
mod pypi;
mod scope;
mod shown;
mod tools;
mod write;

pub(crate) use answers::Answers;
pub(crate) use bundle::fetch as fetch_bundle;
pub(crate) use files::check as check_installed;
pub(crate) use plan::{Options, Plan, plan};
pub(crate) use scope::Scope;
pub(crate) use shown::{show, show_entry};
pub(crate) use write::{Registered, agree_to, already, belongings, forget, registered, reload, remove, rewrite, write};
