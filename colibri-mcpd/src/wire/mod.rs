//! Framing and JSON-RPC envelopes; knows nothing of MCP.
