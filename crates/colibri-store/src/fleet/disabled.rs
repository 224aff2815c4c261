//! The same names in a build without the feature `fleet`: a board's address is refused, so that
//! nothing else of it is ever reached.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use crate::database::Database;
use crate::hosts::HostIdentity;

pub use self::NoFleet as BoardAddress;
pub use self::NoFleet as Fleet;

/// The address of a board of many hosts, and the fleet there, of which this build has none.
#[derive(Debug, Clone)]
pub struct NoFleet(Infallible);

impl NoFleet {
    /// Refuses any address.
    ///
    /// # Errors
    /// Always: this build has no PostgreSQL.
    pub fn parse(_: &str) -> anyhow::Result<BoardAddress> {
        anyhow::bail!(
            "a board's address is given (--board, COLIBRI_BOARD), and this build has no board in PostgreSQL: build colibri-mcpd \
             with its default features (without --no-default-features), or leave the address out"
        )
    }

    /// Is never called: there is no address.
    ///
    /// # Errors
    /// None.
    pub fn start(address: BoardAddress, _: HostIdentity) -> anyhow::Result<Arc<Fleet>> {
        match address.0 {}
    }

    /// Is never called: there is no fleet.
    ///
    /// # Errors
    /// None.
    pub fn witness_each_other(
        &self,
        _: &Path,
        _: impl Fn() -> Option<u64> + Send + 'static,
    ) -> std::io::Result<()> {
        match self.0 {}
    }
}

impl Database {
    /// Is never called: there is no fleet.
    pub fn with_fleet(self, fleet: Arc<Fleet>) -> Database {
        match fleet.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_refused_with_what_to_do() {
        let error = BoardAddress::parse("postgres:///board").unwrap_err();
        let why = error.to_string();
        assert!(why.contains("default features"), "{why}");
    }
}
