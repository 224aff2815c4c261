//! Who may call what: gates, clients, tool rules, contracts, pins.
