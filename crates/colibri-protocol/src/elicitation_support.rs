//! The kinds of input that a client declares, and the declaration of them to a server.

use super::elicitation_kind::ElicitationKind;
use super::version::Version;
use colibri_wire::Json;

/// A set of the kinds of input that servers may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Askable {
    form: bool,
    url: bool,
    sampling: bool,
    tools: bool,
    context: bool,
    roots: bool,
    roots_changed: bool,
}

impl Askable {
    /// The empty set.
    pub const NOTHING: Askable = Askable {
        form: false,
        url: false,
        sampling: false,
        tools: false,
        context: false,
        roots: false,
        roots_changed: false,
    };

    /// The kinds that the words of an entry's `may_ask` name.
    pub fn named<'a>(words: impl IntoIterator<Item = &'a str>) -> Askable {
        let mut askable = Askable::NOTHING;
        for word in words {
            match word {
                "elicitation" => (askable.form, askable.url) = (true, true),
                "sampling" => {
                    (askable.sampling, askable.tools, askable.context) = (true, true, true)
                }
                "roots" => (askable.roots, askable.roots_changed) = (true, true),
                _ => {}
            }
        }
        askable
    }

    /// The kinds that a client of this version declares in these `ClientCapabilities`. A kind that
    /// its version does not have counts as not declared, and so does a declaration that is
    /// ambiguous.
    pub fn read(version: Version, capabilities: Option<Json<'_>>) -> Askable {
        let Some(capabilities) = capabilities.filter(|it| {
            it.ambiguous(&["elicitation", "sampling", "roots"])
                .is_none()
        }) else {
            return Askable::NOTHING;
        };
        let is_declared =
            |ask: ElicitationKind| version >= ask.since() && ask.is_declared(capabilities);
        let sampling = is_declared(ElicitationKind::Sampling);
        let within =
            |capability: &str, key: &str| capabilities.get(capability).and_then(|it| it.get(key));
        Askable {
            // Before there were modes, the only mode was forms.
            form: is_declared(ElicitationKind::Form)
                || (version == Version::V2025_06_18
                    && capabilities
                        .get("elicitation")
                        .is_some_and(|it| it.is_object())),
            url: is_declared(ElicitationKind::Url),
            sampling,
            tools: is_declared(ElicitationKind::SamplingTools),
            // Before this was a capability of its own, each client with sampling supported it.
            context: sampling
                && (version < Version::V2025_11_25
                    || within("sampling", "context").is_some_and(|context| context.is_object())),
            roots: is_declared(ElicitationKind::Roots),
            roots_changed: is_declared(ElicitationKind::Roots)
                && !version.is_modern()
                && within("roots", "listChanged").and_then(|yes| yes.as_bool()) == Some(true),
        }
    }

    /// True if the set has this kind.
    pub fn can(self, ask: ElicitationKind) -> bool {
        match ask {
            ElicitationKind::Form => self.form,
            ElicitationKind::Url => self.url,
            ElicitationKind::Sampling => self.sampling,
            ElicitationKind::SamplingTools => self.tools,
            ElicitationKind::Roots => self.roots,
        }
    }

    /// True if a sampling request may include the context of servers.
    pub(crate) fn has_context(self) -> bool {
        self.context
    }

    /// True if the client notifies servers of changes of its roots.
    pub fn tells_roots(self) -> bool {
        self.roots_changed
    }

    /// The kinds that both sets have.
    pub fn both(self, other: Askable) -> Askable {
        Askable {
            form: self.form && other.form,
            url: self.url && other.url,
            sampling: self.sampling && other.sampling,
            tools: self.tools && other.tools,
            context: self.context && other.context,
            roots: self.roots && other.roots,
            roots_changed: self.roots_changed && other.roots_changed,
        }
    }

    /// The `ClientCapabilities` that declare this set to a server of this version.
    pub(crate) fn declaration(self, version: Version) -> String {
        let has_modes = version >= Version::V2025_11_25;
        let object = |members: &[(&str, bool)]| {
            let mut text = String::new();
            for (key, _) in members
                .iter()
                .filter(|(_, is_there)| *is_there && has_modes)
            {
                text.push_str(if text.is_empty() { "" } else { "," });
                text.push_str(&format!("\"{key}\":{{}}"));
            }
            format!("{{{text}}}")
        };
        let mut members = Vec::new();
        if version >= ElicitationKind::Form.since() && (self.form || (self.url && has_modes)) {
            let modes = object(&[("form", self.form), ("url", self.url)]);
            members.push(format!("\"elicitation\":{modes}"));
        }
        if self.roots {
            let tells = self.roots_changed && !version.is_modern();
            members.push(format!(
                "\"roots\":{}",
                if tells {
                    "{\"listChanged\":true}"
                } else {
                    "{}"
                }
            ));
        }
        if self.sampling {
            let more = object(&[("context", self.context), ("tools", self.tools)]);
            members.push(format!("\"sampling\":{more}"));
        }
        format!("{{{}}}", members.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Version::*;
    use super::*;

    fn read(version: Version, text: &str) -> Vec<&'static str> {
        let askable = Askable::read(version, Some(Json::parse(text.as_bytes()).unwrap()));
        let mut can: Vec<_> = ElicitationKind::ALL
            .into_iter()
            .filter(|ask| askable.can(*ask))
            .map(|ask| match ask {
                ElicitationKind::Form => "form",
                ElicitationKind::Url => "url",
                ElicitationKind::Sampling => "sampling",
                ElicitationKind::SamplingTools => "tools",
                ElicitationKind::Roots => "roots",
            })
            .collect();
        can.extend(askable.has_context().then_some("context"));
        can.extend(askable.tells_roots().then_some("listChanged"));
        can
    }

    /// One cell for each version and capability.
    #[test]
    fn what_a_client_can_be_asked_is_what_its_version_has_of_what_it_declares() {
        let form: &[Version] = &[V2025_06_18, V2025_11_25, V2026_07_28];
        let modes: &[Version] = &[V2025_11_25, V2026_07_28];
        let legacy: &[Version] = &[V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25];
        for version in Version::ALL {
            let among = |versions: &[Version]| versions.contains(&version);
            let old_context = !among(modes);
            for (declared, expected) in [
                (r#"{}"#, vec![]),
                (r#"{"elicitation":{}}"#, vec![("form", among(form))]),
                (
                    r#"{"elicitation":{"form":{}}}"#,
                    vec![("form", among(form))],
                ),
                (
                    r#"{"elicitation":{"url":{}}}"#,
                    vec![("form", version == V2025_06_18), ("url", among(modes))],
                ),
                (
                    r#"{"elicitation":{"form":{},"url":{}}}"#,
                    vec![("form", among(form)), ("url", among(modes))],
                ),
                (
                    r#"{"sampling":{}}"#,
                    vec![("sampling", true), ("context", old_context)],
                ),
                (
                    r#"{"sampling":{"tools":{},"context":{}}}"#,
                    vec![
                        ("sampling", true),
                        ("tools", among(modes)),
                        ("context", true),
                    ],
                ),
                (r#"{"roots":{}}"#, vec![("roots", true)]),
                (
                    r#"{"roots":{"listChanged":true}}"#,
                    vec![("roots", true), ("listChanged", among(legacy))],
                ),
                (r#"{"elicitation":true,"sampling":null,"roots":[]}"#, vec![]),
                (r#"{"roots":{},"Roots":{}}"#, vec![]),
                (
                    r#"{"sampling":{"tools":true}}"#,
                    vec![("sampling", true), ("context", old_context)],
                ),
            ] {
                let expected: Vec<_> = expected
                    .iter()
                    .filter(|(_, yes)| *yes)
                    .map(|(name, _)| *name)
                    .collect();
                assert_eq!(read(version, declared), expected, "{version} {declared}");
            }
            assert_eq!(Askable::read(version, None), Askable::NOTHING);
        }
    }

    /// The declaration to a server has the shape of its version, and reads back as the same set.
    #[test]
    fn a_declaration_has_the_shape_of_its_version() {
        let all = Askable::named(["elicitation", "sampling", "roots", "other"]);
        for (version, expected) in [
            (
                V2024_11_05,
                r#"{"roots":{"listChanged":true},"sampling":{}}"#,
            ),
            (
                V2025_03_26,
                r#"{"roots":{"listChanged":true},"sampling":{}}"#,
            ),
            (
                V2025_06_18,
                r#"{"elicitation":{},"roots":{"listChanged":true},"sampling":{}}"#,
            ),
            (
                V2025_11_25,
                r#"{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}}}"#,
            ),
            (
                V2026_07_28,
                r#"{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{"context":{},"tools":{}}}"#,
            ),
        ] {
            assert_eq!(all.declaration(version), expected);
            assert_eq!(Askable::NOTHING.declaration(version), "{}");
            let again = Askable::read(version, Some(Json::parse(expected.as_bytes()).unwrap()));
            assert_eq!(again.declaration(version), expected);
        }
        assert_eq!(
            Askable::named(["elicitation"]).declaration(V2025_11_25),
            r#"{"elicitation":{"form":{},"url":{}}}"#
        );
    }

    #[test]
    fn what_may_be_asked_narrows_what_can_be_asked() {
        let client = Json::parse(
            br#"{"elicitation":{},"sampling":{"tools":{}},"roots":{"listChanged":true}}"#,
        )
        .unwrap();
        let client = Askable::read(V2025_11_25, Some(client));
        for (words, expected) in [
            (vec![], "{}"),
            (vec!["elicitation"], r#"{"elicitation":{"form":{}}}"#),
            (vec!["sampling"], r#"{"sampling":{"tools":{}}}"#),
            (vec!["roots"], r#"{"roots":{"listChanged":true}}"#),
        ] {
            let narrowed = client.both(Askable::named(words));
            assert_eq!(narrowed.declaration(V2025_11_25), expected);
        }
    }
}
