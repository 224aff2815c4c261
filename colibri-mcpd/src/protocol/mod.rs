//! MCP versions: handshake, discover, capabilities, what an old client may see.
