//! The keys of whatever is reached by HTTP, a server or an agent's model: where it is, with which
//! headers, and what its connections keep to.

use std::collections::BTreeMap;

use hyper::Uri;

use colibri_api::{check_header_name, check_url, is_header_value};
use colibri_json::{DocumentError, Object, ValueCursor};
use colibri_registry::value::{path, unique};
use colibri_registry::{EntryValue, secret_or_text};

use colibri_http::{AllowedTarget, ConnectionRules, UrlOrigin};

/// The rules in `allow_addresses`, `ca` and `proxy`.
pub(super) fn rules(keys: &Object<'_>) -> Result<ConnectionRules, DocumentError> {
    Ok(ConnectionRules {
        allowed: keys
            .read("allow_addresses", |list| unique(list, allowed))?
            .unwrap_or_default(),
        authorities: keys.read("ca", path)?,
        proxy: keys.read("proxy", proxy)?,
    })
}

fn allowed(cursor: &ValueCursor<'_>) -> Result<AllowedTarget, DocumentError> {
    let message =
        "must be loopback, private, link-local, an address, or a network like 10.1.0.0/16";
    AllowedTarget::parse(cursor.text()?).ok_or_else(|| cursor.error(message))
}

fn proxy(cursor: &ValueCursor<'_>) -> Result<Uri, DocumentError> {
    let message = "must be http://HOST:PORT, the proxy's own address, without a user";
    ConnectionRules::proxy(&url(cursor)?).ok_or_else(|| cursor.error(message))
}

/// Request headers, by name.
pub(super) fn headers(
    cursor: &ValueCursor<'_>,
) -> Result<BTreeMap<String, EntryValue>, DocumentError> {
    let mut headers = BTreeMap::new();
    for member in cursor.members()? {
        check_header_name(member.key).map_err(|why| member.key_error(why))?;
        if headers
            .keys()
            .any(|name: &String| name.eq_ignore_ascii_case(member.key))
        {
            return Err(
                member.key_error("this header stands twice (case does not count); remove one")
            );
        }
        let value = secret_or_text(&member.value)?;
        if matches!(&value, EntryValue::Plain(text) if !is_header_value(text)) {
            return Err(member
                .value
                .error("a header's value must be printable ASCII"));
        }
        headers.insert(member.key.to_owned(), value);
    }
    Ok(headers)
}

/// A URL that can be connected to.
pub(super) fn url(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let url = cursor.text()?;
    check_url(url).map_err(|why| cursor.error(why))?;
    match url.parse().map(|url: Uri| UrlOrigin::of(&url).is_ok()) {
        Ok(true) => Ok(url.to_owned()),
        _ => Err(cursor.error("is no URL that can be connected to")),
    }
}
