//! External servers: registry, names, pool, session, relay, retry, secrets.
