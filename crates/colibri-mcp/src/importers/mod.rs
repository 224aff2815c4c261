//! Servers as people have them: a command line, an editor's file, `mcp-bridge.toml`, a registry's
//! `server.json`, an MCPB bundle. A file a source; each makes [`Proposal`]s, and none runs, fetches
//! or writes anything.
//!
//! One odd server never hinders others: what cannot become an entry is a proposal that says why.
//! Only a file that cannot be read at all is an error.

mod archive;
mod bridge_toml;
mod codex;
mod command_line;
mod container;
mod editors;
mod entry;
mod mcp_remote;
mod mcpb;
mod names;
mod opencode;
mod proposal;
mod runner;
mod secret;
mod server_json;
mod source;
mod template;
mod vscode;
mod zed;

pub use archive::{Archive, MAX_ARCHIVE};
pub use command_line::{command, url};
pub use container::container_runner;
pub use mcpb::{Bundle, bundle};
pub use names::{NamedId, map_names};
pub use proposal::{
    EntryKeys, Field, Package, PackageRegistry, Proposal, ProposedProcess, ProposedProgram,
    ProposedRemote, PublishedBundle, Runs, Want,
};
pub use secret::{looks_secret, name_says_secret, shown_url};
pub use source::{Homes, ImportSource, entry_keys, read};
pub use template::{Template, TemplatePart, TemplateValues};
