//! Fields of records of calls that the page needs beyond those that people search for.

use serde::Deserialize;

/// The fields of records beyond those that people search for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallFields {
    pub args: DigestLength,
    pub output: Option<DigestLength>,
    pub continues: Option<u64>,
    pub connection: u64,
    pub client: Option<ClientName>,
}

/// The client of a connection, as it named itself.
#[derive(Debug, Deserialize)]
pub(super) struct ClientName {
    pub name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DigestLength {
    pub length: u64,
}
