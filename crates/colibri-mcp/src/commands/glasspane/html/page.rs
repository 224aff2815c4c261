//! The page around its data: style, script, and the policy that lets nothing else run.

use serde::Serialize;

use super::data::PageData;
use super::tables::tables;
use crate::failure::CommandError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest as _, Sha256};

/// The page around its policy, style, tables, data and script. `@` stands for each, in this order.
const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
/// The script of a page in a file: it asks for nothing.
const SCRIPT: &str = concat!(
    include_str!("kit.js"),
    include_str!("lanes.js"),
    include_str!("script.js")
);
/// The script of a page that is served.
const LIVE_SCRIPT: &str = concat!(
    include_str!("kit.js"),
    include_str!("lanes.js"),
    include_str!("script.js"),
    include_str!("live.js")
);
/// The end of the part of a page that is always the same: a file is recognised by it.
const MARK_END: &str = "content=\"colibri-mcp glasspane\">";

/// The beginning of every page.
pub(super) fn mark() -> &'static str {
    let end = PAGE
        .find(MARK_END)
        .map_or(PAGE.len(), |at| at + MARK_END.len());
    &PAGE[..end]
}

/// The policy of a page with this script. One that is served asks its own server for news.
fn policy(script: &str, connects: &str) -> String {
    let hash = |text: &str| format!("'sha256-{}'", BASE64.encode(Sha256::digest(text)));
    format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src {connects}; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
        hash(script),
        hash(STYLE)
    )
}

/// The page in a file.
pub(super) fn page_in_file(data: &PageData) -> Result<String, CommandError> {
    let (json, tables) = (json(data)?, tables(data));
    Ok(page(&policy(SCRIPT, "'none'"), &tables, &json, SCRIPT))
}

/// The page as it is served, around these tables and this JSON.
pub(crate) fn page_to_serve(json: &str, tables: &str) -> String {
    page(&policy(LIVE_SCRIPT, "'self'"), tables, json, LIVE_SCRIPT)
}

/// A part of the page's content. Nothing in it ends an element or begins another.
///
/// # Errors
/// It cannot be encoded.
pub(crate) fn json(part: &impl Serialize) -> Result<String, CommandError> {
    let data =
        serde_json::to_string(part).map_err(|error| CommandError::Machine(error.to_string()))?;
    // These stand in strings alone, so an escape says the same.
    let data = colibri_text::json(&data);
    let data = data.replace('<', "\\u003c").replace('>', "\\u003e");
    Ok(data.replace('&', "\\u0026"))
}

fn page(policy: &str, tables: &str, data: &str, script: &str) -> String {
    let mut parts = PAGE.split('@');
    let mut page = String::with_capacity(
        PAGE.len() + STYLE.len() + script.len() + data.len() + tables.len() + 1000,
    );
    page.push_str(parts.next().unwrap_or_default());
    for (inside, after) in [policy, STYLE, tables, data, script].into_iter().zip(parts) {
        page.push_str(inside);
        page.push_str(after);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_data_ends_its_element() {
        let evil = "</script><script>alert(1)</script><!--\u{2028}\u{202e}\u{0}&amp;@\"\\";
        let data = json(&serde_json::json!({ evil: [evil] })).unwrap();
        for (page, script) in [
            (page("", "", &data, SCRIPT), SCRIPT),
            (page_to_serve(&data, ""), LIVE_SCRIPT),
        ] {
            assert_eq!(page.matches("<script").count(), 2, "data and script");
            assert_eq!(page.matches("</script").count(), 2);
            assert!(!page.contains("alert(1)</") && !page.contains(['\u{2028}', '\u{202e}', '\0']));
            let (_, data) = page.split_once("id=\"data\">").unwrap();
            let (data, rest) = data.split_once("</script>").unwrap();
            let read: serde_json::Value = serde_json::from_str(data).unwrap();
            assert_eq!(read[evil][0], evil);
            assert!(rest.contains(script) && page.contains(STYLE));
        }
    }

    #[test]
    fn whatever_is_in_the_data_is_on_the_page() {
        let sources = [
            include_str!("data.rs"),
            include_str!("verdict.rs"),
            include_str!("now.rs"),
            include_str!("ledger.rs"),
            include_str!("model_costs.rs"),
            include_str!("period.rs"),
            include_str!("lanes.rs"),
        ];
        let forms = sources
            .iter()
            .flat_map(|source| source.split("Serialize)]\n").skip(1));
        let forms = forms.filter(|form| {
            form.lines()
                .next()
                .is_some_and(|line| line.contains("struct"))
        });
        let fields = forms.flat_map(|form| form.lines().take_while(|line| *line != "}"));
        let fields: Vec<&str> = fields
            .filter(|line| !line.contains("//"))
            .filter_map(|line| line.trim().split_once(": ")?.0.split(' ').next_back())
            .collect();
        assert!(
            fields.len() > 90 && fields.contains(&"left_out"),
            "{fields:?}"
        );
        for field in fields {
            let used = [
                format!(".{field}"),
                format!(" {field},"),
                format!(" {field} }}"),
            ];
            assert!(
                used.iter().any(|used| LIVE_SCRIPT.contains(used)),
                "{field}"
            );
        }
    }

    #[test]
    fn script_and_style_fit_their_places() {
        assert_eq!(PAGE.matches('@').count(), 5);
        assert!(page("", "", "{}", SCRIPT).starts_with(mark()) && mark().ends_with(MARK_END));
        assert!(LIVE_SCRIPT.starts_with(SCRIPT));
        assert!(
            !LIVE_SCRIPT.contains("</script")
                && !LIVE_SCRIPT.contains("<!--")
                && !STYLE.contains("</style")
        );
        // Text is set as text. A namespace is a name.
        let never = [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "http:",
        ];
        let script = LIVE_SCRIPT.replace("\"http://www.w3.org/2000/svg\"", "");
        for never in never {
            assert!(!script.contains(never), "{never}");
        }
        // A page in a file asks for nothing.
        for never in ["fetch(", "EventSource"] {
            assert!(
                !SCRIPT.contains(never) && LIVE_SCRIPT.contains(never),
                "{never}"
            );
        }
        for never in ["url(", "@import", "@font-face"] {
            assert!(!STYLE.contains(never), "{never}");
        }
    }
}
