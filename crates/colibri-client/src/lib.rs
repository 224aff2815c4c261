//! Colibri MCP for programs that embed it: small, blocking, without a runtime.
//!
//! Two ways lead to the same tools:
//!
//! - **The chibi bridge**, a process of the user's own that is started when it is needed:
//!   [`load_mcp_tools`] lists what it offers, [`execute_mcp_tool`] calls one. Loopback TCP says
//!   nothing of who listens there, so the library looks up the listener's user in the system's
//!   table before it sends a byte.
//! - **The daemon's socket**, without a bridge: [`Daemon`], where a tool is called `server__tool`.
//!
//! ```no_run
//! let home = std::path::Path::new("/home/op/.chibi");
//! for tool in colibri_client::load_mcp_tools(home).unwrap_or_default() {
//!     println!("{}: {}", tool.name, tool.description);
//! }
//! ```

mod bridge;
mod daemon;
mod error;
pub mod lock;
pub mod peer;
mod sys;
mod tool;

pub use bridge::{
    ensure_bridge_running, execute_mcp_tool, load_mcp_tools, read_bridge_address, send_request,
};
pub use daemon::{Daemon, DaemonTool, RawMembers, ToolResult, members};
pub use error::ClientError;
pub use tool::{McpTool, is_mcp_tool, mcp_tool_from_info, parse_mcp_path};
