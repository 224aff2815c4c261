//! The key `oauth` of an entry.

use colibri_api::ServerIsolation as Isolation;
use colibri_json::{DocumentError, Object, ValueCursor};
use colibri_registry::secret_or_text;
use colibri_registry::value::{one_of, unique};

use colibri_outbound::oauth::{Grant, IdentityProvider, OauthSettings, REDIRECT_PORT};

const KEYS: &[&str] = &[
    "grant",
    "issuer",
    "client_id",
    "client_secret",
    "private_key",
    "client_metadata_url",
    "scopes",
    "redirect_port",
    "identity_provider",
    "shared",
];

/// The way in which a server's tokens are obtained; `None`: they are not, since a header of the
/// entry has the authorization, or since people share its session and no login belongs to them
/// together.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(
    entry: &Object<'_>,
    has_authorization: bool,
    isolation: Option<Isolation>,
) -> Result<Option<Box<OauthSettings>>, DocumentError> {
    let is_shared = isolation == Some(Isolation::Shared);
    let Some(key) = entry.get("oauth") else {
        let settings = OauthSettings {
            redirect_port: REDIRECT_PORT,
            ..OauthSettings::default()
        };
        return Ok((!has_authorization && !is_shared).then(|| Box::new(settings)));
    };
    if has_authorization {
        return Err(
            key.error("goes with no Authorization in headers: one of the two says who asks")
        );
    }
    let settings = settings(key)?;
    if is_shared && !settings.shared && settings.grant == Grant::Person {
        return Err(key.error(
            "with \"isolation\": \"shared\" one person's login would serve others: \"shared\": true, if that is meant",
        ));
    }
    Ok(Some(Box::new(settings)))
}

fn settings(cursor: &ValueCursor<'_>) -> Result<OauthSettings, DocumentError> {
    let keys = cursor.object(KEYS)?;
    let grants = [
        ("authorization_code", Grant::Person),
        ("client_credentials", Grant::Machine),
    ];
    let text = |value: &ValueCursor<'_>| value.text().map(str::to_owned);
    let settings = OauthSettings {
        grant: keys
            .read("grant", |value| one_of(value, &grants))?
            .unwrap_or_default(),
        issuer: keys.read("issuer", text)?,
        client_id: keys.read("client_id", text)?,
        client_secret: keys.read("client_secret", secret_or_text)?,
        private_key: keys.read("private_key", secret_or_text)?,
        client_metadata_url: keys.read("client_metadata_url", metadata_url)?,
        scopes: keys.read("scopes", |list| unique(list, scope))?,
        redirect_port: keys
            .read("redirect_port", |value| value.integer(1024..=65535))?
            .map_or(REDIRECT_PORT, |port| port as u16),
        identity_provider: keys.read("identity_provider", provider)?,
        shared: keys.read("shared", ValueCursor::boolean)?.unwrap_or(false),
    };
    let has_id = settings.client_id.is_some();
    if has_id && settings.issuer.is_none() {
        return Err(cursor.error(
            "client_id needs issuer beside it: an id is one issuer's, and is shown to no other",
        ));
    }
    for key in ["client_secret", "private_key"] {
        if let Some(secret) = keys.get(key).filter(|_| !has_id) {
            return Err(secret.error(format!("{key} needs client_id beside it")));
        }
    }
    if settings.grant == Grant::Machine
        && settings.client_secret.is_none()
        && settings.private_key.is_none()
    {
        return Err(cursor.error(
            "the grant client_credentials needs client_id with client_secret or private_key",
        ));
    }
    Ok(settings)
}

/// MCP, "Client ID Metadata Documents".
fn metadata_url(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let url = cursor.text()?;
    let path = url
        .strip_prefix("https://")
        .and_then(|rest| rest.split_once('/'));
    match path.is_some_and(|(host, path)| !host.is_empty() && !path.is_empty()) {
        true => Ok(url.to_owned()),
        false => Err(cursor.error(
            "must be an https address with a path, of a document that describes this client",
        )),
    }
}

/// RFC 6749 §3.3.
fn scope(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let scope = cursor.text()?;
    let legal = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    match !scope.is_empty() && scope.bytes().all(legal) {
        true => Ok(scope.to_owned()),
        false => Err(cursor.error("a scope must be printable ASCII without spaces, quotes and \\")),
    }
}

fn provider(cursor: &ValueCursor<'_>) -> Result<IdentityProvider, DocumentError> {
    let keys = cursor.object(&["issuer", "client_id", "client_secret"])?;
    Ok(IdentityProvider {
        issuer: keys.need("issuer")?.text()?.to_owned(),
        client_id: keys.need("client_id")?.text()?.to_owned(),
        client_secret: keys.read("client_secret", secret_or_text)?,
    })
}

#[cfg(test)]
mod tests {
    use crate::registry::{EntryTransport, parse};
    use colibri_outbound::oauth::OauthSettings;

    fn read(keys: &str) -> Result<Option<OauthSettings>, String> {
        let text = format!(r#"{{"servers":{{"s":{{"url":"https://h.example/"{keys}}}}}}}"#);
        let mut registry = parse(text.as_bytes(), "r.json").unwrap();
        match registry.servers.remove("s").map(|entry| entry.transport) {
            Some(EntryTransport::Http { oauth, .. }) => Ok(oauth.map(|settings| *settings)),
            _ => Err(registry.refused["s"].to_string()),
        }
    }

    #[test]
    fn a_server_behind_a_url_is_logged_in_to_unless_its_entry_says_who_asks() {
        assert!(read("").unwrap().is_some());
        assert!(
            read(r#","headers":{"authorization":"x"}"#)
                .unwrap()
                .is_none()
        );
        assert!(read(r#","isolation":"shared""#).unwrap().is_none());
        let all = r#","oauth":{"issuer":"https://i","client_id":"c","client_secret":{"secret":"s"},"scopes":["a","b"],
            "redirect_port":8080,"client_metadata_url":"https://c/d","shared":true,
            "identity_provider":{"issuer":"https://p","client_id":"x"}},"isolation":"shared""#;
        let settings = read(all).unwrap().unwrap();
        assert_eq!((settings.redirect_port, settings.shared), (8080, true));
    }

    #[test]
    fn what_contradicts_itself_blocks_the_entry() {
        for (keys, why) in [
            (r#""oauth":{},"headers":{"Authorization":"x"}"#, "who asks"),
            (r#""oauth":{},"isolation":"shared""#, "one person's login"),
            (r#""oauth":{"client_id":"c"}"#, "issuer"),
            (r#""oauth":{"client_secret":{"secret":"s"}}"#, "client_id"),
            (r#""oauth":{"grant":"client_credentials"}"#, "client_secret"),
            (r#""oauth":{"grant":"password"}"#, "authorization_code"),
            (r#""oauth":{"client_metadata_url":"https://c"}"#, "path"),
            (r#""oauth":{"client_metadata_url":"http://c/d"}"#, "https"),
            (r#""oauth":{"scopes":["a b"]}"#, "scope"),
            (r#""oauth":{"redirect_port":80}"#, "1024"),
            (r#""oauth":{"clientid":"c"}"#, "client_id"),
            (
                r#""oauth":{"identity_provider":{"issuer":"https://p"}}"#,
                "client_id",
            ),
        ] {
            let error = read(&format!(",{keys}")).unwrap_err();
            assert!(error.contains(why), "{keys}: {error}");
        }
    }
}
