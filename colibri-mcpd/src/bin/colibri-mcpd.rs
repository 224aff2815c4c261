//! The daemon: flags → Config → run.

fn main() {}
