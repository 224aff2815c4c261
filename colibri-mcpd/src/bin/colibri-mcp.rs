//! The client: bridge and operator commands.

fn main() {}
