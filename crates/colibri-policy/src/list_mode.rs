//! List modes: the tools that a list shows to a client that is shown only some.

/// The tools of servers that `tools/list` shows. It hides and forbids nothing: what is not listed
/// can be found and called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ListMode {
    /// Those that their entries mark as `always`.
    Search,
    /// These, and those whose definition a person approved.
    Pinned,
    /// All.
    #[default]
    All,
}

/// The words for the list modes in the file.
pub(super) const LIST_MODES: [(&str, ListMode); 3] = [
    ("all", ListMode::All),
    ("search", ListMode::Search),
    ("pinned", ListMode::Pinned),
];
