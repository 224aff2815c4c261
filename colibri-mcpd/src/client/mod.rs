//! Connect, bridge, operator commands.
