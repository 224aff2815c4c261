//! Connect, bridge, operator commands.

pub mod trail;
