//! Secrets, recognised by their name or by their own looks.

/// Words that name secrets, wherever they stand in a name.
const WORDS: &[&str] = &[
    "token",
    "secret",
    "passw",
    "passphrase",
    "apikey",
    "credential",
    "bearer",
    "cookie",
    "private",
    "pat",
    "auth",
    "pwd",
    "pass",
    "dsn",
    "session",
];

/// The beginnings of tokens of well-known services.
const BEGINNINGS: &[&str] = &[
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_",
    "rk_",
    "pk_live_",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "eyJ",
    "npm_",
    "pypi-",
    "hf_",
    "dop_v1_",
    "shpat_",
    "lin_api_",
    "ntn_",
    "secret_",
    "figd_",
    "dckr_pat_",
    "Bearer ",
    "Basic ",
    "-----BEGIN",
];

/// True if a variable, header or option of this name holds a secret.
pub fn name_says_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let parts: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let joined: String = parts.concat();
    // Where it is kept, or how long it holds, is no secret.
    let of_it = [
        "file", "path", "url", "uri", "dir", "type", "name", "ttl", "limit", "method", "mode",
        "id", "max",
    ];
    if parts.last().is_some_and(|last| of_it.contains(last)) {
        return false;
    }
    let whole = |word: &str| parts.contains(&word);
    whole("key")
        || joined.ends_with("key")
        || WORDS.iter().any(|word| match *word {
            // Short words stand in others by chance: path, author.
            "pass" | "pat" | "auth" | "pwd" | "dsn" | "session" => whole(word),
            word => joined.contains(word),
        })
        || whole("authorization")
}

/// True if a value is a secret by its own look: the beginning of a well-known token, a password in
/// an address, or long without being words, a path or an address.
pub fn looks_secret(value: &str) -> bool {
    if BEGINNINGS
        .iter()
        .any(|beginning| value.starts_with(beginning) && value.len() >= beginning.len() + 8)
    {
        return true;
    }
    if let Some((_, rest)) = value.split_once("://") {
        let password = colibri_api::authority(value)
            .rsplit_once('@')
            .is_some_and(|(user, _)| user.contains(':'));
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        let told = |pair: &str| {
            pair.split_once('=')
                .is_some_and(|(key, value)| name_says_secret(key) && !value.is_empty())
        };
        return password || query.split('&').any(told);
    }
    let token = |b: u8| b.is_ascii_alphanumeric() || b"_-+=.".contains(&b);
    let (letters, digits) = value.bytes().fold((0, 0), |(letters, digits), b| {
        (
            letters + usize::from(b.is_ascii_alphabetic()),
            digits + usize::from(b.is_ascii_digit()),
        )
    });
    let is_uuid = value.len() == 36 && value.bytes().filter(|b| *b == b'-').count() == 4;
    value.len() >= 24 && value.bytes().all(token) && letters >= 4 && digits >= 4 && !is_uuid
}

/// An address as it may be shown: without what follows `?` where that holds a secret.
pub fn shown_url(url: &str) -> String {
    match url.split_once('?') {
        Some((before, _)) if looks_secret(url) => format!("{before}?..."),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell() {
        for name in [
            "GITHUB_TOKEN",
            "GITHUB_PERSONAL_ACCESS_TOKEN",
            "api-key",
            "X-API-Key",
            "OPENAI_API_KEY",
            "PGPASSWORD",
            "Authorization",
            "client_secret",
            "GH_PAT",
            "APIKEY",
            "Cookie",
        ] {
            assert!(name_says_secret(name), "{name}");
        }
        for name in [
            "PATH",
            "LOG",
            "AUTHOR",
            "MONKEYS",
            "TOKEN_FILE",
            "KEYBOARD",
            "PATTERN",
            "AUTH_TYPE",
            "API_KEY_ID",
        ] {
            assert!(!name_says_secret(name), "{name}");
        }
    }

    #[test]
    fn values_tell() {
        for value in [
            "ghp_0123456789abcdef",
            "sk-0123456789",
            "postgres://u:p@h/db",
            "https://h/mcp?api_key=1",
            "Bearer abcdefghij",
            "a1b2c3d4e5f6a7b8c9d0e1f2a3b4",
        ] {
            assert!(looks_secret(value), "{value}");
        }
        for value in [
            "",
            "info",
            "/home/op/project/with/a/long/name/123456",
            "https://h/mcp?x=1",
            "a long text of words 1234",
            "123e4567-e89b-12d3-a456-426614174000",
            "sk-",
        ] {
            assert!(!looks_secret(value), "{value}");
        }
        assert_eq!(shown_url("https://h/mcp?token=abc"), "https://h/mcp?...");
        assert_eq!(shown_url("https://h/mcp?x=abc"), "https://h/mcp?x=abc");
    }
}
