//! How a server process is started and ended.
