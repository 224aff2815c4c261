//! Names of hosts on a board that many share.

/// The most bytes of a host's name.
const MAX_HOST: usize = 64;

/// True if `text` is a name for a host: it has no sign of SQL's LIKE and none that separates it
/// from an instance.
pub fn is_host_name(text: &str) -> bool {
    (1..=MAX_HOST).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
}
