//! SQLite: tasks, cost mode, what was last seen of every server.
