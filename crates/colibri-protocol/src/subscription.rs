//! Notifications of changed lists and updated resources, and the filter of a `subscriptions/listen`
//! (2026-07-28, basic/patterns/subscriptions).

use super::answer::META_SUBSCRIPTION_ID;
use super::feature::Feature;
use super::members::{Change, rewrite};
use super::request::{must_be, object};
use super::rpc_error::RpcError;
use super::uri;
use colibri_wire::json::{JsonKind, string};
use colibri_wire::{Edits, Json};

/// The most resources of one subscription.
pub const URIS_LIMIT: usize = 1_000;
/// The longest URI of a subscription, in bytes.
pub const URI_LIMIT: usize = 8 * 1024;

/// The notifications that a subscription selects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscriptionFilter {
    /// Changes of the list of tools.
    pub tools: bool,
    /// Changes of the list of prompts.
    pub prompts: bool,
    /// Changes of the lists of resources and templates.
    pub resources: bool,
    /// Updates of these resources.
    pub uris: Vec<String>,
    /// Status changes of these tasks (see [`super::tasks`]).
    pub tasks_told: Vec<String>,
}

impl SubscriptionFilter {
    /// Reads the filter of `subscriptions/listen`.
    ///
    /// # Errors
    /// -32602 if `notifications` is no object, a member has a wrong type, or there are too many
    /// URIs.
    pub fn read(params: Option<Json<'_>>) -> Result<SubscriptionFilter, RpcError> {
        let filter = match params {
            Some(params) => object(params, "notifications")?,
            None => None,
        };
        let filter = filter.ok_or_else(|| must_be("notifications", "an object"))?;
        let wants = |key: &str| match filter.get(key) {
            Some(value) => value.as_bool().ok_or_else(|| must_be(key, "true or false")),
            None => Ok(false),
        };
        let list = |key: &str| match filter.get(key) {
            Some(list) if list.kind() == JsonKind::Array => strings(list),
            Some(_) => None,
            None => Some(Vec::new()),
        };
        let uris = list("resourceSubscriptions").ok_or_else(|| {
            must_be(
                "resourceSubscriptions",
                "an array of at most 1,000 URIs of 8 KiB",
            )
        })?;
        let tasks_told = list("taskIds")
            .ok_or_else(|| must_be("taskIds", "an array of at most 1,000 ids of 8 KiB"))?;
        Ok(SubscriptionFilter {
            tools: wants("toolsListChanged")?,
            prompts: wants("promptsListChanged")?,
            resources: wants("resourcesListChanged")?,
            uris,
            tasks_told,
        })
    }

    /// True if the filter selects changes of a feature's list.
    pub fn wants(&self, feature: Feature) -> bool {
        match feature {
            Feature::Tool => self.tools,
            Feature::Prompt => self.prompts,
            Feature::Resource | Feature::Template | Feature::Skill => self.resources,
        }
    }

    /// True if the filter selects nothing.
    pub fn is_empty(&self) -> bool {
        *self == SubscriptionFilter::default()
    }

    /// The filter as a JSON object.
    pub fn to_json(&self) -> String {
        let mut members = Vec::new();
        for (wanted, key) in [
            (self.tools, "toolsListChanged"),
            (self.prompts, "promptsListChanged"),
            (self.resources, "resourcesListChanged"),
        ] {
            if wanted {
                members.push(format!("\"{key}\":true"));
            }
        }
        for (list, key) in [
            (&self.uris, "resourceSubscriptions"),
            (&self.tasks_told, "taskIds"),
        ] {
            if !list.is_empty() {
                let list: Vec<String> = list.iter().map(|one| string(one)).collect();
                members.push(format!("\"{key}\":[{}]", list.join(",")));
            }
        }
        format!("{{{}}}", members.join(","))
    }
}

/// The strings of an array. `None` if an element is no string, or if there are too many.
fn strings(list: Json<'_>) -> Option<Vec<String>> {
    let mut uris: Vec<String> = Vec::new();
    for uri in list.elements() {
        let uri = uri.as_str().filter(|uri| uri.len() <= URI_LIMIT)?;
        if uris.len() == URIS_LIMIT {
            return None;
        }
        uris.push(uri.into_owned());
    }
    Some(uris)
}

/// The first message of a subscription: the part of its filter that is honoured. `id` is the id of
/// the `subscriptions/listen` request.
pub fn acknowledged(id: &str, honoured: &SubscriptionFilter) -> Vec<u8> {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\
         \"params\":{{\"_meta\":{{\"{META_SUBSCRIPTION_ID}\":{id}}},\"notifications\":{}}}}}",
        honoured.to_json()
    )
    .into_bytes()
}

/// Reads a server's `notifications/subscriptions/acknowledged`: the number of the daemon's
/// subscription, and the part of its filter that is honoured.
pub(crate) fn read_acknowledged(params: Option<Json<'_>>) -> Option<(u64, SubscriptionFilter)> {
    let id = params?.get("_meta")?.get(META_SUBSCRIPTION_ID)?.as_u64()?;
    Some((id, SubscriptionFilter::read(params).ok()?))
}

/// The notification of a changed list. `subscription` is the subscription's id for a modern client,
/// `None` for a legacy session.
pub fn list_changed(feature: Feature, subscription: Option<&str>) -> Vec<u8> {
    let kind = match feature {
        Feature::Tool => "tools",
        Feature::Prompt => "prompts",
        // A change of skills is one of the resources that they are made of.
        Feature::Resource | Feature::Template | Feature::Skill => "resources",
    };
    let params = subscription
        .map(|id| format!(",\"params\":{{\"_meta\":{{\"{META_SUBSCRIPTION_ID}\":{id}}}}}"))
        .unwrap_or_default();
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{kind}/list_changed\"{params}}}")
        .into_bytes()
}

/// The notification of an updated resource, with the URI that clients see.
pub fn updated(shown: &str, subscription: Option<&str>) -> Vec<u8> {
    let meta = subscription
        .map(|id| format!(",\"_meta\":{{\"{META_SUBSCRIPTION_ID}\":{id}}}"))
        .unwrap_or_default();
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\"params\":{{\"uri\":{}{meta}}}}}",
        string(shown)
    )
    .into_bytes()
}

/// The edits to the `params` of a server's `notifications/resources/updated`. The URI becomes the
/// one that clients see, for a server with this `prefix`. The subscription's id becomes the
/// client's, as written, or is removed.
pub fn updated_edits(params: Json<'_>, prefix: Option<&str>, subscription: Option<&str>) -> Edits {
    let mut edits = Edits::new();
    let ours = subscription.map(|id| format!("\"{META_SUBSCRIPTION_ID}\":{id}"));
    let has_meta = params.get("_meta").is_some_and(|meta| meta.is_object());
    let insert = match &ours {
        Some(ours) if !has_meta => format!("\"_meta\":{{{ours}}}"),
        _ => String::new(),
    };
    rewrite(&mut edits, params, &insert, |member, edits| {
        if member.key.is_string("uri") {
            if let Some(server) = prefix {
                uri::expose(edits, server, member.value);
            }
        } else if member.key.is_string("_meta") && has_meta {
            rewrite(
                edits,
                member.value,
                ours.as_deref().unwrap_or_default(),
                |member, _| match member.key.is_string(META_SUBSCRIPTION_ID) {
                    true => Change::Remove,
                    false => Change::Keep,
                },
            );
        } else if member.key.is_string("_meta") && ours.is_some() {
            return Change::Remove;
        }
        Change::Keep
    });
    edits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_in_tests::json;

    fn read(text: &str) -> Option<SubscriptionFilter> {
        SubscriptionFilter::read(Some(json(text))).ok()
    }

    #[test]
    fn filters_say_what_is_wanted() {
        let some = |tools, prompts, resources, uris: &[&str]| {
            let uris = uris.iter().map(|uri| (*uri).to_owned()).collect();
            Some(SubscriptionFilter {
                tools,
                prompts,
                resources,
                uris,
                ..SubscriptionFilter::default()
            })
        };
        for (text, expected) in [
            (r#"{"notifications":{}}"#, some(false, false, false, &[])),
            (
                r#"{"notifications":{"toolsListChanged":true,"x":1}}"#,
                some(true, false, false, &[]),
            ),
            (
                r#"{"notifications":{"toolsListChanged":false,"promptsListChanged":true}}"#,
                some(false, true, false, &[]),
            ),
            (
                r#"{"notifications":{"resourcesListChanged":true,"resourceSubscriptions":["a\u0062",""]}}"#,
                some(false, false, true, &["ab", ""]),
            ),
            (r#"{"notifications":{"toolsListChanged":1}}"#, None),
            (r#"{"notifications":{"resourceSubscriptions":"a"}}"#, None),
            (r#"{"notifications":{"resourceSubscriptions":[1]}}"#, None),
            (
                r#"{"notifications":{"resourceSubscriptions":["\ud800"]}}"#,
                None,
            ),
            (r#"{"notifications":[]}"#, None),
            ("{}", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
            if let Some(filter) = expected {
                let written = format!("{{\"notifications\":{}}}", filter.to_json());
                assert_eq!(read(&written).as_ref(), Some(&filter), "{written}");
                for feature in Feature::ALL {
                    let wanted = [filter.tools, filter.prompts, filter.resources];
                    assert_eq!(filter.wants(feature), wanted[feature.index().min(2)]);
                }
            }
        }
        for (uri, count) in [
            ("a".to_owned(), URIS_LIMIT + 1),
            ("a".repeat(URI_LIMIT + 1), 1),
        ] {
            let uris = vec![string(&uri); count].join(",");
            let text = format!("{{\"notifications\":{{\"resourceSubscriptions\":[{uris}]}}}}");
            assert!(SubscriptionFilter::read(Some(json(&text))).is_err());
        }
    }

    #[test]
    fn an_acknowledgement_says_what_is_honoured() {
        let filter = SubscriptionFilter {
            prompts: true,
            uris: vec!["file:///a".to_owned()],
            ..SubscriptionFilter::default()
        };
        let message = String::from_utf8(acknowledged("7", &filter)).unwrap();
        assert_eq!(
            message,
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7},"notifications":{"promptsListChanged":true,"resourceSubscriptions":["file:///a"]}}}"#
        );
        let read = read_acknowledged(json(&message).get("params"));
        assert_eq!(read, Some((7, filter)));
        for other in [
            r#"{"notifications":{}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"7"},"notifications":{}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#,
        ] {
            assert_eq!(read_acknowledged(Some(json(other))), None, "{other}");
        }
    }

    #[test]
    fn lists_have_a_notification_each_and_templates_that_of_resources() {
        assert_eq!(
            list_changed(Feature::Tool, None),
            br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#
        );
        assert_eq!(
            list_changed(Feature::Prompt, Some("\"a\"")),
            br#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"a"}}}"#
        );
        assert_eq!(
            list_changed(Feature::Resource, None),
            list_changed(Feature::Template, None)
        );
    }

    #[test]
    fn updates_name_the_uri_and_the_subscription_of_the_client() {
        let id = "io.modelcontextprotocol/subscriptionId";
        let theirs = format!(r#"{{"uri":"file:\/\/\/a","_meta":{{"x":1e400,"{id}":3}},"y":[1]}}"#);
        let plain = r#"{ "uri" : "ui://p" }"#.to_owned();
        for (text, prefix, subscription, expected) in [
            (
                &theirs,
                None,
                None,
                r#"{"uri":"file:\/\/\/a","_meta":{"x":1e400},"y":[1]}"#.to_owned(),
            ),
            (
                &theirs,
                Some("fs"),
                Some("\"s\""),
                format!(r#"{{"uri":"fs+file:\/\/\/a","_meta":{{"{id}":"s","x":1e400}},"y":[1]}}"#),
            ),
            (&plain, None, None, plain.clone()),
            (
                &plain,
                Some("fs"),
                None,
                r#"{ "uri" : "ui://fs/p" }"#.to_owned(),
            ),
            (
                &plain,
                None,
                Some("9"),
                format!(r#"{{"_meta":{{"{id}":9}}, "uri" : "ui://p" }}"#),
            ),
        ] {
            let edits = updated_edits(json(text), prefix, subscription);
            assert_eq!(
                String::from_utf8(edits.apply(text.as_bytes())).unwrap(),
                expected
            );
        }
        assert_eq!(
            updated("fs+a", Some("9")),
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"fs+a","_meta":{{"{id}":9}}}}}}"#).into_bytes()
        );
    }
}
