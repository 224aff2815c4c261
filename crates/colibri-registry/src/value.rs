//! Readers of single values, the same for registry and policy.

use std::path::{Path, PathBuf};

use colibri_json::{DocumentError, ValueCursor};

/// The most bytes that a size may name (1 PiB): beyond it a limit is a typing error.
const MAX_SIZE: u64 = 1 << 50;

/// True if `id` may name a server: `[a-z][a-z0-9-]{0,31}`.
pub fn is_server_id(id: &str) -> bool {
    id.len() <= 32
        && id.starts_with(|c: char| c.is_ascii_lowercase())
        && id
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// True if `name` may name a secret: `[a-z0-9-]{1,32}`.
pub fn is_secret_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// True if `name` may name a user of the policy: `[a-z_][a-z0-9_-]{0,31}`.
pub fn is_user_name(name: &str) -> bool {
    name.len() <= 32
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// The name of a user of the policy.
///
/// # Errors
/// Another kind of value, or a name that no user can have.
pub fn user(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let name = cursor.text()?;
    if !is_user_name(name) {
        return Err(
            cursor.error("a user's name must be 1 to 32 characters of a-z, 0-9, _ and -, and begin with a letter or _")
        );
    }
    Ok(name.to_owned())
}

/// An absolute path, written plainly, other than `/`.
///
/// # Errors
/// Not text, or not such a path.
pub fn path(cursor: &ValueCursor<'_>) -> Result<PathBuf, DocumentError> {
    match path_or_root(cursor)? {
        root if root == Path::new("/") => Err(cursor.error("must not be the root directory")),
        path => Ok(path),
    }
}

/// An absolute path without `.`, `..`, empty parts or a slash at the end: it means the same to
/// everyone who compares it as text, and it names no other file after a directory on the way has
/// moved.
///
/// # Errors
/// Not text, or not such a path.
pub(crate) fn path_or_root(cursor: &ValueCursor<'_>) -> Result<PathBuf, DocumentError> {
    let text = cursor.text()?;
    let Some(below) = text.strip_prefix('/') else {
        return Err(cursor.error("must be an absolute path"));
    };
    if text.len() > 1023 {
        return Err(cursor.error("must have at most 1023 bytes (PATH_MAX)"));
    }
    if !below.is_empty() && below.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(cursor.error("must not hold //, ., .. or end with a slash"));
    }
    Ok(PathBuf::from(text))
}

/// Bytes: a whole number, or a string of digits with `K`, `M`, `G` or `T` (powers of 1024).
///
/// # Errors
/// Neither of these, nothing, or more than 1024T.
pub fn size(cursor: &ValueCursor<'_>) -> Result<u64, DocumentError> {
    if !cursor.is_string() {
        return cursor.integer(1..=MAX_SIZE);
    }
    let text = cursor.text()?;
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        Some(b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    let bytes = digits
        .parse::<u64>()
        .ok()
        .filter(|_| plain)
        .and_then(|n| n.checked_mul(1 << shift));
    bytes
        .filter(|bytes| (1..=MAX_SIZE).contains(bytes))
        .ok_or_else(|| {
            cursor.error(
                "must be a size such as 1048576, \"64M\" or \"2G\" (K, M, G, T), at most 1024T",
            )
        })
}

/// The choice that the string names.
///
/// # Errors
/// Not text, or none of these: all are named.
pub fn one_of<T: Clone>(
    cursor: &ValueCursor<'_>,
    choices: &[(&str, T)],
) -> Result<T, DocumentError> {
    let text = cursor.text()?;
    choices
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, choice)| choice.clone())
        .ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            cursor.error(format!("must be one of {}", names.join(", ")))
        })
}

/// A list of at most 256 items, none twice.
///
/// # Errors
/// Not a list, too long, an item twice, or what `read` refuses.
pub fn unique<T: PartialEq>(
    cursor: &ValueCursor<'_>,
    read: impl Fn(&ValueCursor<'_>) -> Result<T, DocumentError>,
) -> Result<Vec<T>, DocumentError> {
    let mut items = Vec::new();
    for item in cursor.array()? {
        if items.len() == 256 {
            return Err(item.error("a list may have at most 256 items"));
        }
        let read = read(&item)?;
        if items.contains(&read) {
            return Err(item.error("stands in the list twice; remove one"));
        }
        items.push(read);
    }
    Ok(items)
}
