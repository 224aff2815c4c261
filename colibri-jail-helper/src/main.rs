//! The setuid-root helper.

fn main() {}
