//! The versions of MCP, their differences, and their negotiation.
//!
//! Every fact here is read from `schema/<version>/schema.ts` of the specification's repository.

use std::fmt;

/// A published version of the protocol, oldest first: `<` means "older than".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// The first one.
    V2024_11_05,
    /// Batches, audio, tool annotations.
    V2025_03_26,
    /// Structured results, resource links, elicitation. Batches are removed.
    V2025_06_18,
    /// The last version with a handshake.
    V2025_11_25,
    /// The first version without a handshake: each request declares its version.
    V2026_07_28,
}

/// The way in which a client declares its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// With an `initialize` handshake, once per connection.
    Legacy,
    /// With `_meta` on each request.
    Modern,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Version; 5] = [
        Version::V2024_11_05,
        Version::V2025_03_26,
        Version::V2025_06_18,
        Version::V2025_11_25,
        Version::V2026_07_28,
    ];

    /// The newest version that `initialize` can negotiate.
    pub const LATEST_LEGACY: Version = Version::V2025_11_25;

    /// The newest version of all.
    pub const LATEST: Version = Version::V2026_07_28;

    /// The versions that a modern client can choose from, newest first, as in `supportedVersions`
    /// of `server/discover` and `supported` of -32022. Legacy versions are left out, since they
    /// cannot be declared in `_meta`.
    pub const MODERN: [Version; 1] = [Version::V2026_07_28];

    /// The version's name, a date.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::V2024_11_05 => "2024-11-05",
            Version::V2025_03_26 => "2025-03-26",
            Version::V2025_06_18 => "2025-06-18",
            Version::V2025_11_25 => "2025-11-25",
            Version::V2026_07_28 => "2026-07-28",
        }
    }

    /// The version with this name, if it is known.
    pub fn parse(name: &str) -> Option<Version> {
        Version::ALL
            .into_iter()
            .find(|version| version.as_str() == name)
    }

    /// The version's era.
    pub fn era(self) -> Era {
        if self < Version::V2026_07_28 {
            Era::Legacy
        } else {
            Era::Modern
        }
    }

    /// True if clients declare the version in `_meta` on each request.
    pub fn is_modern(self) -> bool {
        self.era() == Era::Modern
    }

    /// The version that `initialize` is answered with: the requested one if it is a known legacy
    /// version, else the newest legacy one (2025-11-25, basic/lifecycle, "Version Negotiation").
    pub(crate) fn negotiate(requested: &str) -> Version {
        Version::parse(requested)
            .filter(|version| version.era() == Era::Legacy)
            .unwrap_or(Version::LATEST_LEGACY)
    }

    /// True if JSON-RPC batches may be received (2025-03-26, basic, "Batching"; removed in
    /// 2025-06-18).
    pub fn has_batches(self) -> bool {
        self == Version::V2025_03_26
    }

    /// True if a peer of this version can parse a content block of this `type`.
    pub(crate) fn knows_content(self, kind: &str) -> bool {
        match kind {
            "text" | "image" | "resource" => true,
            "audio" => self >= Version::V2025_03_26,
            "resource_link" => self >= Version::V2025_06_18,
            _ => false,
        }
    }

    /// True if `structuredContent` may be any JSON value and `outputSchema` any schema. Older
    /// versions allow objects only.
    pub(crate) fn has_free_output(self) -> bool {
        self >= Version::V2026_07_28
    }

    /// True if definitions and implementations have a `title` besides their `name`.
    pub(crate) fn has_titles(self) -> bool {
        self >= Version::V2025_06_18
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Version::*;
    use super::*;

    #[test]
    fn names_read_back_and_sort_by_date() {
        for version in Version::ALL {
            assert_eq!(Version::parse(&version.to_string()), Some(version));
        }
        assert!(Version::ALL.is_sorted());
        assert!(Version::ALL.map(Version::as_str).is_sorted());
        for unknown in ["", "2025-06-17", "2025-06-18 ", "DRAFT-2026-v1", "1.0"] {
            assert_eq!(Version::parse(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn initialize_echoes_a_known_legacy_version_and_else_offers_the_newest() {
        for (asked, answered) in [
            ("2024-11-05", V2024_11_05),
            ("2025-03-26", V2025_03_26),
            ("2025-06-18", V2025_06_18),
            ("2025-11-25", V2025_11_25),
            ("2026-07-28", V2025_11_25),
            ("2024-10-07", V2025_11_25),
            ("2099-01-01", V2025_11_25),
            ("", V2025_11_25),
        ] {
            assert_eq!(Version::negotiate(asked), answered, "{asked}");
        }
    }

    #[test]
    fn eras() {
        assert!(
            Version::ALL[..4]
                .iter()
                .all(|v| v.era() == Era::Legacy && !v.is_modern())
        );
        assert_eq!(V2026_07_28.era(), Era::Modern);
        assert_eq!(
            Version::MODERN.to_vec(),
            Version::ALL
                .into_iter()
                .filter(|v| v.is_modern())
                .collect::<Vec<_>>()
        );
        assert_eq!(
            (Version::LATEST, Version::LATEST_LEGACY),
            (V2026_07_28, V2025_11_25)
        );
    }

    /// One row per version, one test per cell: the columns are facts from `schema.ts` of that
    /// version.
    #[test]
    fn what_each_version_knows() {
        const CONTENT: [&str; 7] = [
            "text",
            "image",
            "resource",
            "audio",
            "resource_link",
            "tool_use",
            "video",
        ];
        let yes = true;
        let no = false;
        for (version, content, batches, free_output, titles) in [
            (V2024_11_05, [yes, yes, yes, no, no, no, no], no, no, no),
            (V2025_03_26, [yes, yes, yes, yes, no, no, no], yes, no, no),
            (V2025_06_18, [yes, yes, yes, yes, yes, no, no], no, no, yes),
            (V2025_11_25, [yes, yes, yes, yes, yes, no, no], no, no, yes),
            (V2026_07_28, [yes, yes, yes, yes, yes, no, no], no, yes, yes),
        ] {
            for (kind, known) in CONTENT.into_iter().zip(content) {
                assert_eq!(version.knows_content(kind), known, "{version} {kind}");
            }
            assert_eq!(version.has_batches(), batches, "{version} batches");
            assert_eq!(
                version.has_free_output(),
                free_output,
                "{version} outputs of any type"
            );
            assert_eq!(version.has_titles(), titles, "{version} titles");
        }
    }
}
