//! The items that servers advertise, as last seen: lists come from here, not from the servers.

use std::sync::Arc;

use bytes::Bytes;

use colibri_protocol::upstream::Capabilities;
use colibri_protocol::{Feature, Version};
use colibri_store::{CatalogueEntry, CatalogueKey, Database, StoreError};
use colibri_wire::Json;

/// The report and the items of one server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalogue {
    /// True if it was ever asked.
    pub seen: bool,
    /// True if it was known to ask people for something when this was kept.
    pub asks: bool,
    /// The version that it speaks.
    pub version: Option<Version>,
    /// Its lists, by [`Feature::index`].
    pub lists: [Arc<ServerList>; Feature::COUNT],
    /// Its instructions.
    pub instructions: Option<String>,
    /// `capabilities`, as it wrote them.
    pub capabilities: Option<Bytes>,
    /// `serverInfo`, as it wrote it.
    pub server_info: Option<Bytes>,
}

/// One list of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerList {
    /// The definitions, in the server's order.
    pub definitions: Vec<ServerDefinition>,
    /// The time for which it may be stored, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// The first of what it held that cannot be offered, each with the reason. Not kept in the
    /// store: it is read again.
    pub left_out: Vec<String>,
}

/// A tool, a prompt, a resource, a template or a skill as its server defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerDefinition {
    /// The item's identity at its server: its name, its URI, or the template.
    pub name: String,
    /// The definition as the server wrote it.
    pub raw: Bytes,
}

impl Catalogue {
    /// The server's items of a feature, in its order.
    pub fn of(&self, feature: Feature) -> &[ServerDefinition] {
        &self.lists[feature.index()].definitions
    }

    /// The time for which its list of a feature may be stored, in milliseconds.
    pub fn ttl_ms(&self, feature: Feature) -> Option<u64> {
        self.lists[feature.index()].ttl_ms
    }

    /// All that it offers.
    pub fn all(&self) -> impl Iterator<Item = (Feature, &ServerDefinition)> {
        let of = |feature| {
            self.of(feature)
                .iter()
                .map(move |definition| (feature, definition))
        };
        Feature::ALL.into_iter().flat_map(of)
    }

    /// Keeps it, in place of what was kept of the server before.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn keep(
        &self,
        store: &Database,
        server: &str,
        digest: &str,
        executable: &str,
    ) -> Result<(), StoreError> {
        let entry = CatalogueEntry {
            protocol_version: self
                .version
                .map(|version| version.as_str().to_owned())
                .unwrap_or_default(),
            capabilities: self.capabilities.as_ref().map(|bytes| bytes.to_vec()),
            server_info: self.server_info.as_ref().map(|bytes| bytes.to_vec()),
            instructions: self.instructions.clone().map(String::into_bytes),
            lists: Feature::ALL
                .into_iter()
                .map(|feature| {
                    let definitions = self.of(feature).iter().map(|of| of.raw.to_vec());
                    (feature.noun().to_owned(), definitions.collect())
                })
                .collect(),
            asks: self.asks,
            seen_at: 0,
        };
        store.put_catalogue(
            CatalogueKey {
                server,
                digest,
                executable,
            },
            &entry,
        )
    }

    /// The stored catalogue of a server with this entry and executable.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn kept(
        store: &Database,
        server: &str,
        digest: &str,
        executable: &str,
    ) -> Result<Option<Catalogue>, StoreError> {
        let entry = store.catalogue(CatalogueKey {
            server,
            digest,
            executable,
        })?;
        Ok(entry.and_then(|mut entry| {
            let mut list = |feature: Feature| {
                let kept = entry.lists.remove(feature.noun()).unwrap_or_default();
                let definitions = kept.into_iter().map(|raw| {
                    let name = Json::parse(&raw)
                        .ok()?
                        .get(feature.identifier())?
                        .as_str()?
                        .into_owned();
                    let raw = Bytes::from(raw);
                    Some(ServerDefinition { name, raw })
                });
                let definitions = definitions.collect::<Option<_>>()?;
                Some(Arc::new(ServerList {
                    definitions,
                    ..ServerList::default()
                }))
            };
            Some(Catalogue {
                seen: true,
                lists: [
                    list(Feature::Tool)?,
                    list(Feature::Prompt)?,
                    list(Feature::Resource)?,
                    list(Feature::Template)?,
                    list(Feature::Skill)?,
                ],
                asks: entry.asks,
                version: Some(Version::parse(&entry.protocol_version)?),
                instructions: entry
                    .instructions
                    .and_then(|text| String::from_utf8(text).ok()),
                capabilities: entry.capabilities.map(Bytes::from),
                server_info: entry.server_info.map(Bytes::from),
            })
        }))
    }

    /// The capabilities that the server declares.
    pub fn can(&self) -> Capabilities {
        let json = self
            .capabilities
            .as_ref()
            .and_then(|raw| Json::part(raw, 0..raw.len()));
        Capabilities::read(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_is_kept_and_recalled() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        let list = |definitions: &[(&str, &'static str)]| {
            let definitions = definitions.iter().map(|(name, raw)| ServerDefinition {
                name: (*name).to_owned(),
                raw: Bytes::from_static(raw.as_bytes()),
            });
            Arc::new(ServerList {
                definitions: definitions.collect(),
                ttl_ms: None,
                left_out: Vec::new(),
            })
        };
        let said = Catalogue {
            seen: true,
            asks: true,
            version: Some(Version::V2025_11_25),
            lists: [
                list(&[
                    ("b", r#"{"name":"b","inputSchema":{}}"#),
                    ("a", r#"{"name":"a"}"#),
                ]),
                list(&[("p", r#"{"name":"\u0070"}"#)]),
                list(&[("file:///a", r#"{"uri":"file:///a","name":"a"}"#)]),
                list(&[("file:///{a}", r#"{"uriTemplate":"file:///{a}","name":"a"}"#)]),
                list(&[(
                    "skill://a/SKILL.md",
                    r#"{"uri":"skill://a/SKILL.md","resources":"dynamic"}"#,
                )]),
            ],
            capabilities: Some(Bytes::from_static(
                br#"{"resources":{"subscribe":true},"logging":{}}"#,
            )),
            server_info: Some(Bytes::from_static(br#"{"name":"s"}"#)),
            instructions: Some("Use it.".to_owned()),
        };
        said.keep(&store, "s", "d", "e").unwrap();
        let recalled = Catalogue::kept(&store, "s", "d", "e").unwrap().unwrap();
        assert_eq!(recalled, said);
        assert!(recalled.can().subscribe && recalled.can().logging && !recalled.can().completions);
    }
}
