//! Items that servers list, as clients see them: tools, prompts, resources and templates.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tracing::info;

use crate::relay::{CallTarget, ConfirmationRule, TargetDescription, TargetRules, ToolFlow};
use crate::servers::{HostedServer, State, Viewer};
use colibri_peer::aside;
use colibri_policy::{
    CompiledCheck, ListMode, PinStatus, Rights, RuleVerdict, SchemaCheck, ToolCheck, canonical,
};
use colibri_protocol::lists::{Exposure, definition_edits};
use colibri_protocol::{Feature, MirroredArgument, Version};
use colibri_registry::sha256_hex;
use colibri_wire::Json;

/// Digits of the sum of a schema.
const SCHEMA_DIGITS: usize = 16;

/// The digests that distinguish a tool's definition from others.
pub struct Sums {
    /// The first eight bytes of SHA-256 over its schema as compact JSON with sorted keys, in
    /// hexadecimal.
    pub schema: String,
    /// SHA-256 of all of it, as it is pinned.
    pub definition: String,
}

/// One tool, prompt, resource or template of one server.
pub struct Item {
    /// The target of calls of it, with the rules on it.
    target: Arc<CallTarget>,
    /// The server that has it.
    pub server: Arc<HostedServer>,
    /// The kind of item.
    pub feature: Feature,
    /// The server's own name or URI of it, or the template.
    pub own: String,
    /// The name, URI or template that clients see.
    pub exposed: String,
    /// The name under the id of its entry, for clients whose policy says this account of it.
    under_entry: Option<String>,
    /// Its definition as the server wrote it.
    pub raw: Bytes,
    /// The version that the server speaks.
    version: Version,
    /// True if its entry has a label that is about nothing its server has: then nobody calls it.
    has_label_fault: bool,
    /// True if it is a tool whose definition a person accepted.
    by_hand: bool,
    /// The digests of its definition, made at their first use.
    sums: OnceLock<Sums>,
    /// The definition for each version of clients, made when first wanted.
    forms: [OnceLock<Bytes>; Version::ALL.len()],
}

impl Item {
    /// An item as a server of this version lists it, under the name or URI that clients see.
    pub fn new(
        server: &Arc<HostedServer>,
        (feature, own, raw): (Feature, &str, &Bytes),
        (exposed, under_entry, version): (&str, Option<&str>, Version),
        (standing, by_hand): (PinStatus, bool),
        label_denial: Option<&RuleVerdict>,
    ) -> Item {
        let is_tool = feature == Feature::Tool;
        let contract = server.spec.contract.as_ref().filter(|_| is_tool);
        let flow = &server.spec.entry.flow;
        let description = TargetDescription {
            flow: ToolFlow {
                labels: if is_tool {
                    flow.of_tool(own)
                } else {
                    flow.of_others()
                },
                contract: contract.and_then(|contract| contract.may()).cloned(),
            }
            .any(),
            // A server's own word counts where a person has accepted it.
            reads: !is_tool || flow.reads(own) || by_hand && says_read_only(raw),
            mirrored: mirrored(raw),
            has_output_schema: is_tool && has_output_schema(raw),
            is_idempotent: !is_tool || server.spec.rules.idempotent(own),
            answers: contract.and_then(|contract| contract.answers(own)).cloned(),
            ..TargetDescription::of_server((&server.spec.id, server.clone()), feature, own)
                .by_own_name()
        };
        let rules = TargetRules {
            verdict: match label_denial {
                Some(denial) => denial.clone(),
                None => server.spec.rules.judge(feature, own, raw),
            },
            refuses_tasks: true,
            pin: Some(standing),
            prompt_contract: (server.spec.contract.clone()).filter(|_| feature == Feature::Prompt),
            check: is_tool.then(|| ArgumentCheck::of(server, own, raw)),
            confirmation: ConfirmationRule::Entry,
            ..TargetRules::default()
        };
        Item {
            target: CallTarget::handled(description, rules, server.clone()),
            feature,
            own: own.to_owned(),
            exposed: exposed.to_owned(),
            under_entry: under_entry.map(str::to_owned),
            raw: raw.clone(),
            version,
            has_label_fault: label_denial.is_some(),
            by_hand,
            sums: OnceLock::new(),
            forms: Default::default(),
            server: server.clone(),
        }
    }

    /// The target of calls of it.
    pub fn target(&self) -> &Arc<CallTarget> {
        &self.target
    }

    /// The verdict of the entry's rules.
    pub fn verdict(&self) -> &RuleVerdict {
        &self.target.rules().verdict
    }

    /// The status of its definition's pin.
    pub fn standing(&self) -> &PinStatus {
        (self.target.rules().pin.as_ref()).unwrap_or(&PinStatus::Approved)
    }

    /// True if it only reads.
    pub(crate) fn reads(&self) -> bool {
        self.target.description().reads
    }

    /// True if it is what would be made of these.
    pub(crate) fn is_still(
        &self,
        server: &Arc<HostedServer>,
        raw: &Bytes,
        (exposed, under_entry, version): (&str, Option<&str>, Version),
        (standing, by_hand): (&PinStatus, bool),
        label_denial: Option<&RuleVerdict>,
    ) -> bool {
        self.has_label_fault == label_denial.is_some()
            && Arc::ptr_eq(&self.server, server)
            && self.raw == *raw
            && self.exposed == exposed
            && self.under_entry.as_deref() == under_entry
            && self.standing() == standing
            && self.by_hand == by_hand
            && self.version == version
    }

    /// The digests that distinguish a tool's definition from others.
    pub fn sums(&self) -> &Sums {
        self.sums.get_or_init(|| {
            let definition = Json::part(&self.raw, 0..self.raw.len());
            let schema = definition.and_then(|definition| definition.get("inputSchema"));
            let schema = schema.map_or("null", |schema| schema.text());
            let mut digits = sha256_hex(canonical(schema.as_bytes()));
            digits.truncate(SCHEMA_DIGITS);
            Sums {
                schema: digits,
                definition: sha256_hex(canonical(&self.raw)),
            }
        })
    }

    /// True if its list shows it to who is listed tools in this mode.
    pub fn is_listed(&self, mode: ListMode) -> bool {
        self.feature != Feature::Tool
            || match mode {
                ListMode::All => true,
                ListMode::Pinned => self.by_hand || self.server.spec.rules.always(&self.own),
                ListMode::Search => self.server.spec.rules.always(&self.own),
            }
    }

    /// The server's description of it; empty if there is none.
    pub fn description(&self) -> Cow<'_, str> {
        let definition = Json::part(&self.raw, 0..self.raw.len());
        let text = definition.and_then(|definition| definition.get("description")?.as_str());
        text.unwrap_or_default()
    }

    /// The name, URI or template that a client with these rights sees.
    pub fn shown(&self, rights: &Rights) -> &str {
        let spec = &self.server.spec;
        let is_meant = || rights.account(&spec.entry.entry_id) == Some(&spec.id);
        let under_entry = self.under_entry.as_deref().filter(|_| is_meant());
        under_entry.unwrap_or(&self.exposed)
    }

    /// The definition for a user's client of a version, under this name that the client sees.
    pub fn definition(&self, shown: &str, client: Version, uid: u32) -> Bytes {
        let (state, _, _) = self.server.state(Viewer::User(uid));
        if matches!(state, State::BackingOff | State::Blocked | State::Failed) {
            return self.form(shown, client, Some(state.name()));
        }
        if shown != self.exposed {
            return self.form(shown, client, None);
        }
        let index = Version::ALL
            .iter()
            .position(|version| *version == client)
            .unwrap_or_default();
        self.forms[index]
            .get_or_init(|| self.form(shown, client, None))
            .clone()
    }

    fn form(&self, shown: &str, client: Version, state: Option<&str>) -> Bytes {
        let Some(definition) = Json::part(&self.raw, 0..self.raw.len()) else {
            return self.raw.clone();
        };
        let is_name = matches!(self.feature, Feature::Tool | Feature::Prompt);
        let is_plain = || {
            let name = shown.split_once("__");
            name.is_some_and(|(_, own)| own == self.own)
        };
        let exposure = Exposure {
            server: &self.server.spec.id,
            name: shown,
            original: &self.own,
            changed: is_name && !is_plain(),
            state,
        };
        let exposure = self.server.spec.entry.prefix.then_some(&exposure);
        self.edited(definition, client, exposure)
    }

    /// The definition for a client of a version that sees its server alone: under its own name.
    pub(crate) fn own_definition(&self, client: Version) -> Bytes {
        match Json::part(&self.raw, 0..self.raw.len()) {
            Some(definition) => self.edited(definition, client, None),
            None => self.raw.clone(),
        }
    }

    fn edited(
        &self,
        definition: Json<'_>,
        client: Version,
        exposure: Option<&Exposure<'_>>,
    ) -> Bytes {
        let edits = definition_edits(self.feature, definition, (self.version, client), exposure);
        if edits.is_empty() {
            self.raw.clone()
        } else {
            Bytes::from(edits.apply(&self.raw))
        }
    }
}

/// The checks of a tool's arguments, compiled at its first call.
struct ArgumentCheck {
    server: Arc<HostedServer>,
    tool: Box<str>,
    definition: Bytes,
    compiled: OnceLock<ToolCheck>,
}

impl ArgumentCheck {
    fn of(
        server: &Arc<HostedServer>,
        tool: &str,
        definition: &Bytes,
    ) -> Arc<dyn CompiledCheck + Send + Sync> {
        Arc::new(ArgumentCheck {
            server: server.clone(),
            tool: tool.into(),
            definition: definition.clone(),
            compiled: OnceLock::new(),
        })
    }

    fn compile(&self) -> ToolCheck {
        let spec = &self.server.spec;
        let mode = spec.entry.validate;
        let contract = spec.contract.clone();
        let check = ToolCheck::new(&spec.id, &self.tool, &self.definition, mode, contract);
        if let Some(why) = check.unchecked().filter(|_| mode != SchemaCheck::Contract) {
            info!(
                server = &*spec.id,
                tool = &*self.tool,
                "arguments are not checked against its schema: {why}"
            );
        }
        check
    }
}

impl CompiledCheck for ArgumentCheck {
    fn compiled(&self) -> &ToolCheck {
        match self.compiled.get() {
            Some(check) => check,
            // A schema made to be slow takes tenths of a second; who calls another tool does not
            // wait for it.
            None => aside(|| self.compiled.get_or_init(|| self.compile())),
        }
    }
}

/// True if a definition says `readOnlyHint: true`, wherever it says anything of that.
fn says_read_only(definition: &[u8]) -> bool {
    let Some(definition) = Json::part(definition, 0..definition.len()) else {
        return false;
    };
    let annotations = definition
        .members()
        .filter(|member| member.key.is_string("annotations"));
    let mut hints = annotations
        .flat_map(|member| member.value.members())
        .filter(|member| member.key.is_string("readOnlyHint"))
        .peekable();
    hints.peek().is_some() && hints.all(|hint| hint.value.as_bool() == Some(true))
}

/// True if a tool's definition has an `outputSchema`.
fn has_output_schema(definition: &[u8]) -> bool {
    let definition = Json::part(definition, 0..definition.len());
    definition.is_some_and(|definition| definition.get("outputSchema").is_some())
}

/// The arguments that a tool's definition has repeated in header fields.
fn mirrored(definition: &[u8]) -> Vec<MirroredArgument> {
    if memchr::memmem::find(definition, b"x-mcp-header").is_none() {
        return Vec::new();
    }
    let definition = Json::part(definition, 0..definition.len());
    definition
        .map(MirroredArgument::of_tool)
        .unwrap_or_default()
}
