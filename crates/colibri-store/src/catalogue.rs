//! The catalogue: what each server said of itself when it last ran, so that lists need no running
//! server.

use std::collections::BTreeMap;

use super::database::{Database, now_ms};
use super::error::{StoreError, room};
use rusqlite::{OptionalExtension, TransactionBehavior, named_params};

/// The source of a catalogue entry. If any part differs, the entry does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogueKey<'a> {
    /// The server's id in the registry.
    pub server: &'a str,
    /// Digest of its registry entry.
    pub digest: &'a str,
    /// Fingerprint of its executable, as the caller makes it.
    pub executable: &'a str,
}

/// The report of a server. JSON is kept byte for byte as received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CatalogueEntry {
    /// The protocol version that the server speaks, which also tells its era.
    pub protocol_version: String,
    /// Raw JSON of `capabilities`.
    pub capabilities: Option<Vec<u8>>,
    /// Raw JSON of `serverInfo`.
    pub server_info: Option<Vec<u8>>,
    /// Raw JSON string of `instructions`.
    pub instructions: Option<Vec<u8>>,
    /// Raw JSON of each entry of its lists, in the server's order, by what is listed.
    pub lists: BTreeMap<String, Vec<Vec<u8>>>,
    /// True if the server was seen to ask people for something.
    pub asks: bool,
    /// The time at which it was learned, in milliseconds since the epoch; set by `put_catalogue`.
    pub seen_at: i64,
}

impl Database {
    /// The catalogue entry under exactly this key.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn catalogue(&self, key: CatalogueKey<'_>) -> Result<Option<CatalogueEntry>, StoreError> {
        self.with(|connection| {
            // One transaction, so that another process cannot change the lists between the two
            // reads.
            let transaction = connection.transaction()?;
            let entry = transaction
                .prepare_cached(
                    "SELECT protocol_version, capabilities, server_info, instructions, seen_at, asks FROM catalogue
                     WHERE server = ?1 AND digest = ?2 AND executable = ?3",
                )?
                .query_row([key.server, key.digest, key.executable], |row| {
                    Ok(CatalogueEntry {
                        protocol_version: row.get(0)?,
                        capabilities: row.get(1)?,
                        server_info: row.get(2)?,
                        instructions: row.get(3)?,
                        lists: BTreeMap::new(),
                        seen_at: row.get(4)?,
                        asks: row.get(5)?,
                    })
                })
                .optional()?;
            let Some(mut entry) = entry else { return Ok(None) };
            let mut select = transaction.prepare_cached(
                "SELECT feature, definition FROM catalogue_definitions WHERE server = ?1 ORDER BY feature, position",
            )?;
            for row in select.query_map([key.server], |row| Ok((row.get(0)?, row.get(1)?)))? {
                let (feature, definition): (String, Vec<u8>) = row?;
                entry.lists.entry(feature).or_default().push(definition);
            }
            Ok(Some(entry))
        })
    }

    /// Keeps `entry` as what is known of the server, in place of whatever was known of it under any
    /// key: a server has one registry entry and one executable at a time, and so the table stays as
    /// small as the registry.
    ///
    /// # Errors
    /// [`StoreError::NoRoom`], [`StoreError::Sqlite`]; what was known before then still is.
    pub fn put_catalogue(
        &self,
        key: CatalogueKey<'_>,
        entry: &CatalogueEntry,
    ) -> Result<(), StoreError> {
        let definitions = entry.lists.values().flatten();
        room(self.path(), definitions.map(Vec::len).sum())?;
        self.with(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction
                .prepare_cached("DELETE FROM catalogue WHERE server = ?1")?
                .execute([key.server])?;
            transaction
                .prepare_cached(
                    "INSERT INTO catalogue VALUES (:server, :digest, :executable, :version, :capabilities,
                         :server_info, :instructions, :seen_at, :asks)",
                )?
                .execute(named_params! {
                    ":server": key.server,
                    ":digest": key.digest,
                    ":executable": key.executable,
                    ":version": entry.protocol_version,
                    ":capabilities": entry.capabilities,
                    ":server_info": entry.server_info,
                    ":instructions": entry.instructions,
                    ":seen_at": now_ms().cast_signed(),
                    ":asks": entry.asks,
                })?;
            {
                let mut insert = transaction.prepare_cached(
                    "INSERT INTO catalogue_definitions (server, feature, position, definition) VALUES (?1, ?2, ?3, ?4)",
                )?;
                for (feature, definitions) in &entry.lists {
                    for (position, definition) in (0_i64..).zip(definitions) {
                        insert.execute((key.server, feature, position, definition))?;
                    }
                }
            }
            transaction.commit()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CatalogueKey<'_> = CatalogueKey {
        server: "github",
        digest: "d1",
        executable: "e1",
    };

    fn entry() -> CatalogueEntry {
        CatalogueEntry {
            protocol_version: "2025-11-25".to_owned(),
            capabilities: Some(br#"{"tools":{"listChanged":1e400}}"#.to_vec()),
            server_info: Some(br#"{"version":"1","name":"x"}"#.to_vec()),
            instructions: Some(br#""\ud800 lone""#.to_vec()),
            lists: BTreeMap::from([
                (
                    "tool".to_owned(),
                    vec![
                        br#"{"name":"b", "a":18446744073709551616}"#.to_vec(),
                        b"{\"name\":\"a\xff\"}".to_vec(),
                    ],
                ),
                (
                    "resource".to_owned(),
                    vec![br#"{"uri":"file:///a"}"#.to_vec()],
                ),
            ]),
            asks: true,
            seen_at: 0,
        }
    }

    #[test]
    fn gives_back_byte_for_byte_in_order_after_a_restart() {
        let state = tempfile::tempdir().unwrap();
        Database::open(state.path())
            .unwrap()
            .put_catalogue(KEY, &entry())
            .unwrap();
        let mut known = Database::open(state.path())
            .unwrap()
            .catalogue(KEY)
            .unwrap()
            .unwrap();
        assert!(known.seen_at > 0);
        known.seen_at = 0;
        assert_eq!(known, entry());
    }

    #[test]
    fn another_entry_or_executable_is_unknown() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        store.put_catalogue(KEY, &entry()).unwrap();
        for other in [
            CatalogueKey {
                server: "gitlab",
                ..KEY
            },
            CatalogueKey {
                digest: "d2",
                ..KEY
            },
            CatalogueKey {
                executable: "e2",
                ..KEY
            },
        ] {
            assert_eq!(store.catalogue(other).unwrap(), None);
        }
    }

    #[test]
    fn a_new_entry_replaces_the_old_one_whole() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        store.put_catalogue(KEY, &entry()).unwrap();
        let changed = CatalogueKey {
            digest: "d2",
            ..KEY
        };
        let shorter = CatalogueEntry {
            lists: BTreeMap::from([("prompt".to_owned(), vec![b"{}".to_vec()])]),
            instructions: None,
            ..entry()
        };
        store.put_catalogue(changed, &shorter).unwrap();
        assert_eq!(store.catalogue(KEY).unwrap(), None);
        let known = store.catalogue(changed).unwrap().unwrap();
        assert_eq!((known.lists, known.instructions), (shorter.lists, None));
    }
}
