//! Extensions that clients and servers declare beyond MCP's own methods.

use super::request::META_CLIENT_CAPABILITIES;
use super::tasks;
use colibri_wire::Json;

/// The most extensions of one peer that are read.
const LOOKED_AT: usize = 100;

/// True if both sides declare an extension that the daemon does not know: the client in `params` of this request, and
/// the server in its `ServerCapabilities`. The notifications of such an extension are relayed unchanged.
pub fn share_unknown(params: Option<Json<'_>>, server: Json<'_>) -> bool {
    let client = || params?.get("_meta")?.get(META_CLIENT_CAPABILITIES)?.get("extensions");
    let Some((client, server)) = client().zip(server.get("extensions")) else {
        return false;
    };
    let declared = client
        .members()
        .take(LOOKED_AT)
        .filter_map(|member| member.key.as_str());
    declared
        .filter(|name| name != tasks::EXTENSION)
        .any(|name| server.get(&name).is_some_and(|settings| settings.is_object()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_is_shared_by_peers_that_both_declare_it() {
        let json = |text: &'static str| Json::parse(text.as_bytes()).unwrap();
        let client = json(
            r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{},"org.example/x":{}}}}}"#,
        );
        for (server, shared) in [
            (r#"{"extensions":{"org.example/x":{}}}"#, true),
            (r#"{"extensions":{"org.example/x":7}}"#, false),
            (r#"{"extensions":{"org.example/y":{}}}"#, false),
            (r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#, false),
            (r#"{"extensions":[]}"#, false),
            ("{}", false),
        ] {
            assert_eq!(share_unknown(Some(client), json(server)), shared, "{server}");
            assert!(!share_unknown(None, json(server)), "{server}");
        }
    }
}
