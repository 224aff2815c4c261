//! An entry of the registry as the daemon reads it: on top of what the helper understands too, how
//! the server is reached otherwise, who shares its processes, what may be called and for how long.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use colibri_json::{DocumentError, Object, ValueCursor};
use colibri_registry::value::{one_of, path, size, unique};
use colibri_registry::{EntryValue, Registry, SshTarget, StdioCommand};

use super::agent::{AgentSpec, agent};
use super::{http_keys, oauth_key};
pub use colibri_api::ServerIsolation as Isolation;
use colibri_outbound::EndpointTransport as Spoken;
use colibri_outbound::oauth::OauthSettings;
use colibri_policy::{FlowLabels, RulePlace, SchemaCheck, ToolRules};

/// One server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSpec {
    /// SHA-256 of the entry's value exactly as it stands in the file, lower-case hex: what the
    /// daemon passes to the helper as `--digest`.
    pub digest: String,
    /// The id of its entry: the server's own, unless it is an account of an entry with several.
    pub entry_id: String,
    /// The transport of the server.
    pub transport: EntryTransport,
    /// The isolation: the callers that share a process. `None`: not said; the daemon's default is
    /// [`Isolation::User`], or [`Isolation::Call`] where the jail has only a `root_path`.
    pub isolation: Option<Isolation>,
    /// The time limits that the entry sets.
    pub limits: TimeLimits,
    /// The rules on tools.
    pub tools: ToolRules,
    /// The rules on prompts.
    pub prompts: ToolRules,
    /// The rules on resources, by their URIs.
    pub resources: ToolRules,
    /// `false`: tools, prompts and URIs are exposed under the server's own names.
    pub prefix: bool,
    /// Methods beyond MCP's that may be forwarded to this server.
    pub methods: Vec<String>,
    /// The kinds of requests that the server may send to the person's side (`elicitation`,
    /// `sampling`, `roots`).
    pub may_ask: Vec<String>,
    /// The place of that.
    pub may_ask_place: RulePlace,
    /// The place of `isolation`.
    pub isolation_place: RulePlace,
    /// The labels of its tools: those that only read, what their results are, which arguments are
    /// destinations.
    pub flow: FlowLabels,
    /// A contract file (absolute path) that narrows the arguments of this server's tools.
    pub contract: Option<PathBuf>,
    /// The most bytes a result may have; larger ones are kept, and an error result says where.
    /// `None`: no limit.
    pub result_limit: Option<u64>,
    /// True if results are relayed whole whatever the cost mode says.
    pub whole: bool,
    /// Retries of a failed call: attempts in all (default 4).
    pub attempts: u32,
    /// The schemas that arguments have to fit.
    pub validate: SchemaCheck,
    /// Record arguments and results in full in the trail, not only as digests.
    pub record_full: bool,
    /// `true`: the entry is read and checked, but the server is not offered.
    pub disabled: bool,
}

/// The transport of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum EntryTransport {
    /// A process with stdio pipes.
    Stdio(Box<StdioCommand>),
    /// HTTP.
    Http {
        /// `http://` or `https://`.
        url: String,
        /// Request headers, by name.
        headers: BTreeMap<String, EntryValue>,
        /// Its transport.
        spoken: Spoken,
        /// The rules for its connections.
        rules: colibri_http::ConnectionRules,
        /// The way in which its tokens are obtained. `None`: a header of the entry says who asks.
        oauth: Option<Box<OauthSettings>>,
    },
}

/// The four time limits; `None`: the daemon's default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TimeLimits {
    /// From starting the process to the end of its handshake (`start_timeout_ms`).
    pub start: Option<Duration>,
    /// From sending a call, or its last progress, to the answer (`timeout_ms`).
    pub call: Option<Duration>,
    /// Without a call in flight, after which the process is ended (`idle_timeout_s`).
    pub idle: Option<Duration>,
    /// Of one call in all, whatever its progress (`total_timeout_ms`).
    pub total: Option<Duration>,
}

/// A day: no call, start or idle time is meant to be longer.
const MAX_TIMEOUT_MS: u64 = 86_400_000;

/// The values of `validate`.
const VALIDATE: [(&str, SchemaCheck); 3] = [
    ("all", SchemaCheck::All),
    ("strict", SchemaCheck::Strict),
    ("contract", SchemaCheck::Contract),
];

/// The keys that go with a url alone.
const URL_KEYS: [&str; 5] = ["headers", "allow_addresses", "ca", "proxy", "oauth"];

/// Reads a registry whole; `file` is the name that errors give.
///
/// # Errors
/// As [`Registry::parse_with`].
pub fn parse(bytes: &[u8], file: &str) -> Result<Registry<ServerSpec, AgentSpec>, DocumentError> {
    Registry::parse_with(bytes, file, entry, agent)
}

impl ServerSpec {
    /// True if it runs in a jail.
    pub(crate) fn is_jailed(&self) -> bool {
        matches!(&self.transport, EntryTransport::Stdio(command) if command.jail.is_some())
    }

    /// Takes over the lines of the rules from the same entry in a file that was read again.
    pub(crate) fn follow_lines(&self, newer: &ServerSpec) {
        self.tools.follow(&newer.tools);
        self.prompts.follow(&newer.prompts);
        self.resources.follow(&newer.resources);
        self.may_ask_place.follow(&newer.may_ask_place);
        self.isolation_place.follow(&newer.isolation_place);
    }

    /// True if its server is one of our own integrations.
    pub fn is_integration(&self) -> bool {
        matches!(&self.transport, EntryTransport::Stdio(command) if command.is_integration())
    }

    /// The server of another host that it leads to.
    pub(crate) fn ssh(&self) -> Option<&SshTarget> {
        match &self.transport {
            EntryTransport::Stdio(command) => command.ssh.as_ref(),
            EntryTransport::Http { .. } => None,
        }
    }

    /// The stand-in for an entry that was refused: it starts nothing.
    pub fn refused(id: &str) -> ServerSpec {
        ServerSpec {
            digest: String::new(),
            entry_id: id.to_owned(),
            transport: EntryTransport::Stdio(Box::new(StdioCommand {
                program: PathBuf::from("/"),
                package: None,
                ssh: None,
                args: Vec::new(),
                env: BTreeMap::new(),
                cwd: None,
                jail: None,
            })),
            isolation: None,
            limits: TimeLimits::default(),
            tools: ToolRules::default(),
            prompts: ToolRules::default(),
            resources: ToolRules::default(),
            prefix: true,
            methods: Vec::new(),
            may_ask: Vec::new(),
            may_ask_place: RulePlace::default(),
            isolation_place: RulePlace::default(),
            flow: FlowLabels::default(),
            contract: None,
            result_limit: None,
            whole: false,
            attempts: 1,
            validate: SchemaCheck::All,
            record_full: false,
            disabled: false,
        }
    }
}

fn entry(
    keys: &Object<'_>,
    base: colibri_registry::ServerEntry,
) -> Result<ServerSpec, DocumentError> {
    let isolations = Isolation::ALL.map(|isolation| (isolation.name(), isolation));
    let isolation = keys.read("isolation", |v| one_of(v, &isolations))?;
    let transport = transport(keys, base.command, isolation)?;
    let milliseconds = |key: &str| {
        keys.read(key, |v| v.integer(1..=MAX_TIMEOUT_MS))
            .map(|v| v.map(Duration::from_millis))
    };
    let limits = TimeLimits {
        start: milliseconds("start_timeout_ms")?,
        call: milliseconds("timeout_ms")?,
        idle: keys
            .read("idle_timeout_s", |v| v.integer(1..=MAX_TIMEOUT_MS / 1000))?
            .map(Duration::from_secs),
        total: milliseconds("total_timeout_ms")?,
    };
    let asks = ["elicitation", "sampling", "roots"].map(|ask| (ask, ask.to_owned()));
    let may_ask = keys.read("may_ask", |list| unique(list, |item| one_of(item, &asks)))?;
    if keys.get("accounts").is_some() {
        one_name_each(keys)?;
    }
    Ok(ServerSpec {
        digest: base.digest,
        entry_id: base.entry_id,
        transport,
        isolation,
        limits,
        tools: keys.read("tools", ToolRules::read)?.unwrap_or_default(),
        prompts: keys
            .read("prompts", ToolRules::read_names)?
            .unwrap_or_default(),
        resources: keys
            .read("resources", ToolRules::read_names)?
            .unwrap_or_default(),
        prefix: keys.read("prefix", ValueCursor::boolean)?.unwrap_or(true),
        methods: keys
            .read("methods", |list| unique(list, method))?
            .unwrap_or_default(),
        may_ask: may_ask.unwrap_or_else(|| vec!["elicitation".to_owned()]),
        may_ask_place: RulePlace::of_key(keys, "may_ask"),
        isolation_place: RulePlace::of_key(keys, "isolation"),
        flow: FlowLabels::read(keys)?,
        contract: keys.read("contract", path)?,
        result_limit: keys.read("result_limit", size)?,
        whole: whole(keys)?,
        attempts: keys.get("attempts").map_or(Ok(4), |v| v.integer(1..=10))? as u32,
        record_full: keys
            .read("record", |v| {
                one_of(v, &[("digest", false), ("full", true)])
            })?
            .unwrap_or(false),
        validate: keys
            .read("validate", |v| one_of(v, &VALIDATE))?
            .unwrap_or_default(),
        disabled: base.disabled,
    })
}

/// Refuses what would give the accounts of an entry the same names.
fn one_name_each(keys: &Object<'_>) -> Result<(), DocumentError> {
    let bare = keys
        .get("prefix")
        .filter(|prefix| prefix.boolean() == Ok(false));
    match bare.or_else(|| keys.get("methods")) {
        Some(value) => Err(value.error(
            "does not go with accounts: what they offer would have the same names. Remove it, or make an entry of each",
        )),
        None => Ok(()),
    }
}

/// True if results are relayed whole. A limit beside it is a mistake in one of the two.
fn whole(keys: &Object<'_>) -> Result<bool, DocumentError> {
    match (
        keys.read("whole", ValueCursor::boolean)?,
        keys.get("result_limit"),
    ) {
        (Some(true), Some(limit)) => {
            Err(limit.error("the entry has \"whole\": true, which leaves no limit: remove one"))
        }
        (whole, _) => Ok(whole.unwrap_or(false)),
    }
}

fn transport(
    keys: &Object<'_>,
    command: Option<Box<StdioCommand>>,
    isolation: Option<Isolation>,
) -> Result<EntryTransport, DocumentError> {
    let http = command.is_none();
    let mut spoken = Spoken::Streamable;
    // Editors write `type` beside what already says it. One that disagrees is a mistake in one of
    // the two.
    if let Some(kind) = keys.get("type") {
        let says_http = match kind.text()? {
            "stdio" => false,
            "http" | "streamable-http" | "streamableHttp" => true,
            "sse" => {
                spoken = Spoken::Events;
                true
            }
            _ => return Err(kind.error("must be stdio, http or sse")),
        };
        if says_http != http {
            let message = if http {
                "the entry has a url: must be http or sse"
            } else {
                "the entry has a command: must be stdio"
            };
            return Err(kind.error(message));
        }
    }
    if let Some(command) = command {
        let has_keys = command.ssh.as_ref().is_some_and(|ssh| ssh.keys.is_some());
        if let (true, Some(Isolation::Shared), Some(ssh)) = (has_keys, isolation, keys.get("ssh")) {
            return Err(ssh.error(
                "has a key for each user, who cannot share a process: remove keys, or isolation",
            ));
        }
        return match URL_KEYS.iter().find_map(|key| Some((key, keys.get(key)?))) {
            Some((key, value)) => Err(value.error(format!(
                "{key} goes with url, which this entry does not have"
            ))),
            None => Ok(EntryTransport::Stdio(command)),
        };
    }
    let headers = keys
        .read("headers", http_keys::headers)?
        .unwrap_or_default();
    let has_authorization = headers
        .keys()
        .any(|name| name.eq_ignore_ascii_case("authorization"));
    Ok(EntryTransport::Http {
        url: http_keys::url(keys.need("url")?)?,
        oauth: oauth_key::read(keys, has_authorization, isolation)?,
        headers,
        spoken,
        rules: http_keys::rules(keys)?,
    })
}

fn method(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let method = cursor.text()?;
    let legal = method
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_$/.-".contains(&b));
    if !(1..=128).contains(&method.len()) || !legal {
        return Err(
            cursor.error("a method must be 1 to 128 characters of A-Z, a-z, 0-9 and _ $ / . -")
        );
    }
    Ok(method.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_registry::ENTRY_KEYS;
    use colibri_text::Pattern;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Registry<ServerSpec, AgentSpec>, DocumentError> {
        parse(text.as_bytes(), "external-mcp.json")
    }

    /// The registry with this entry alone, called `s`.
    fn one(entry: &str) -> Result<ServerSpec, DocumentError> {
        let mut registry = read(&format!("{{\"servers\":{{\"s\":{entry}}}}}"))?;
        match registry.refused.remove("s") {
            Some(error) => Err(error),
            None => Ok(registry.servers.remove("s").unwrap()),
        }
    }

    fn with(key_and_value: &str) -> Result<ServerSpec, DocumentError> {
        one(&format!("{{\"command\":\"/bin/x\",{key_and_value}}}"))
    }

    #[test]
    fn prompts_and_resources_have_rules_without_those_on_effects() {
        let entry = with(
            r#""prompts":{"deny":["x"]},"resources":{"allow":["file:///*"],"confirm":["*.key"]}"#,
        )
        .unwrap();
        assert_eq!(entry.prompts.deny, [Pattern::new("x")]);
        assert_eq!(entry.resources.allow, [Pattern::new("file:///*")]);
        assert_eq!(entry.resources.confirm, [Pattern::new("*.key")]);
        for wrong in [
            r#""prompts":{"idempotent":["x"]}"#,
            r#""resources":{"confirm_destructive":true}"#,
            r#""resources":{"allow":[]}"#,
            r#""prompts":["x"]"#,
        ] {
            assert!(with(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn reads_what_the_example_of_the_design_says_beyond_commands_and_jails() {
        let text = r#"{ "servers": {
          "github": {
            "command": "/usr/local/bin/github-mcp-server", "jail": { "path": "/r", "user": "mcp0" },
            "isolation": "user", "idle_timeout_s": 300, "timeout_ms": 30000,
            "tools": { "allow": ["*"], "deny": ["delete_*"], "confirm": ["create_*"] } },
          "docs": { "url": "https://docs.example.org/mcp", "headers": { "Authorization": { "secret": "docs" } } } } }"#;
        let registry = read(text).unwrap();
        let github = &registry.servers["github"];
        assert!(github.is_jailed());
        assert_eq!(github.isolation, Some(Isolation::User));
        assert_eq!(github.limits.idle, Some(Duration::from_secs(300)));
        assert_eq!(github.limits.call, Some(Duration::from_millis(30_000)));
        assert_eq!(github.tools.deny, [Pattern::new("delete_*")]);
        assert!(
            matches!(&registry.servers["docs"].transport, EntryTransport::Http { headers, .. } if headers.len() == 1)
        );
    }

    #[test]
    fn one_odd_server_with_a_url_blocks_itself_alone() {
        for (odd, why) in [
            (r#"{"url":"https://x.example/","typ":"sse"}"#, "type"),
            (r#"{"url":"https://x.example/","type":"ws"}"#, "sse"),
            (r#"{"url":"gopher://x.example/"}"#, "https://"),
            (r#"{"url":7}"#, "string"),
            (
                r#"{"url":"https://x.example/","allow_addresses":["lan"]}"#,
                "loopback",
            ),
            (r#"{"url":"https://x.example/","timeout_ms":0}"#, "1"),
        ] {
            let registry = read(&format!(
                r#"{{"servers":{{"good":{{"command":"/bin/x"}},"bad":{odd}}}}}"#
            ))
            .unwrap();
            assert_eq!(
                registry.servers.keys().collect::<Vec<_>>(),
                ["good"],
                "{odd}"
            );
            let error = &registry.refused["bad"];
            assert!(error.message.contains(why), "{odd}: {error}");
        }
        // Where a jail may be meant a mistake refuses the file.
        for unsure in [
            r#"{"url":"https://x.example/","jail":{"path":"/r"}}"#,
            r#"{"url":"x","command":"/x"}"#,
        ] {
            assert!(
                read(&format!(r#"{{"servers":{{"bad":{unsure}}}}}"#)).is_err(),
                "{unsure}"
            );
        }
    }

    #[test]
    fn what_the_connections_of_an_entry_keep_to() {
        let entry = one(
            r#"{"url":"https://x.example/sse","type":"sse","allow_addresses":["loopback","10.0.0.0/8"],
            "ca":"/etc/ca.pem","proxy":"http://proxy.example:3128"}"#,
        );
        let EntryTransport::Http { spoken, rules, .. } = entry.unwrap().transport else {
            panic!()
        };
        assert_eq!((spoken, rules.allowed.len()), (Spoken::Events, 2));
        assert_eq!(rules.authorities, Some(PathBuf::from("/etc/ca.pem")));
        assert_eq!(
            rules.proxy.unwrap().to_string(),
            "http://proxy.example:3128/"
        );
        for wrong in [
            r#""allow_addresses":["loopback","loopback"]"#,
            r#""allow_addresses":"loopback""#,
            r#""ca":"ca.pem""#,
            r#""proxy":"https://p""#,
            r#""proxy":"http://u:p@p:1""#,
            r#""proxy":"http://p:1/x""#,
        ] {
            assert!(
                one(&format!(r#"{{"url":"https://x.example/",{wrong}}}"#)).is_err(),
                "{wrong}"
            );
        }
        for key in [
            r#""allow_addresses":["private"]"#,
            r#""ca":"/x""#,
            r#""proxy":"http://p:1""#,
        ] {
            let error = with(key).unwrap_err();
            assert!(error.to_string().contains("goes with url"), "{error}");
        }
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let entry = one("{\"command\":\"/bin/x\"}").unwrap();
        assert_eq!(entry.may_ask, ["elicitation"]);
        assert_eq!(
            (
                entry.attempts,
                entry.prefix,
                entry.disabled,
                entry.record_full
            ),
            (4, true, false, false)
        );
        assert_eq!((entry.isolation, entry.result_limit), (None, None));
        assert_eq!(entry.limits, TimeLimits::default());
        assert_eq!(read("{}").unwrap(), Registry::default());
    }

    #[test]
    fn transport_and_its_keys_must_agree() {
        for entry in [
            r#"{"command":"/x","headers":{}}"#,
            r#"{"command":"/x","type":"http"}"#,
            r#"{"command":"/x","type":"STDIO"}"#,
            r#"{"url":"http://h","type":"stdio"}"#,
        ] {
            assert!(one(entry).is_err(), "{entry}");
        }
        for entry in [
            r#"{"command":"/x","type":"stdio","args":["a b","",";rm"],"cwd":"/"}"#,
            r#"{"url":"http://h","type":"http"}"#,
            r#"{"url":"http://[::1]:80/p?q=1","type":"streamable-http"}"#,
        ] {
            assert!(one(entry).is_ok(), "{entry}");
        }
    }

    #[test]
    fn urls_and_headers_are_checked() {
        for url in [
            "",
            "h",
            "ftp://h",
            "HTTP://h",
            "http://",
            "http:///p",
            "http://:80",
            "http://u:p@h",
            "http://h/ x",
            "http://h/\\r\\nX: y",
            "http://h/#f",
            "http://h\\\\@evil",
            "http://\u{fc}",
        ] {
            assert!(one(&format!("{{\"url\":\"{url}\"}}")).is_err(), "{url}");
        }
        for headers in [
            r#"{"":"x"}"#,
            r#"{"A B":"x"}"#,
            r#"{"A:":"x"}"#,
            r#"{"Host":"x"}"#,
            r#"{"MCP-Session-Id":"x"}"#,
            r#"{"X":"a","x":"b"}"#,
            r#"{"X":"a\r\nY: b"}"#,
            r#"{"X":"ü"}"#,
            r#"{"X":1}"#,
            r#"{"X":null}"#,
            r#"{"X":{}}"#,
            r#"{"X":{"secret":"A"}}"#,
            r#"{"X":{"secret":"../a"}}"#,
            r#"{"X":{"secret":"a","b":1}}"#,
        ] {
            assert!(
                one(&format!("{{\"url\":\"http://h\",\"headers\":{headers}}}")).is_err(),
                "{headers}"
            );
        }
    }

    #[test]
    fn other_values_are_checked() {
        for key in [
            r#""isolation":"none""#,
            r#""isolation":"User""#,
            r#""idle_timeout_s":0"#,
            r#""idle_timeout_s":86401"#,
            r#""timeout_ms":0"#,
            r#""timeout_ms":-1"#,
            r#""timeout_ms":1.5"#,
            r#""timeout_ms":1e3"#,
            r#""timeout_ms":"30000""#,
            r#""timeout_ms":86400001"#,
            r#""start_timeout_ms":0"#,
            r#""total_timeout_ms":0"#,
            r#""tools":[]"#,
            r#""tools":{"allow":[]}"#,
            r#""tools":{"allow":"*"}"#,
            r#""tools":{"alow":["*"]}"#,
            r#""tools":{"deny":[""]}"#,
            r#""tools":{"deny":[1]}"#,
            r#""tools":{"deny":["a","a"]}"#,
            r#""tools":{"confirm_destructive":"yes"}"#,
            r#""prefix":"false""#,
            r#""prefix":0"#,
            r#""methods":["a b"]"#,
            r#""methods":[""]"#,
            r#""may_ask":["everything"]"#,
            r#""may_ask":"roots""#,
            r#""contract":"git.json""#,
            r#""result_limit":0"#,
            r#""result_limit":"lots""#,
            r#""attempts":0"#,
            r#""attempts":11"#,
            r#""record":"all""#,
            r#""record":true"#,
            r#""disabled":"no""#,
        ] {
            assert!(with(key).is_err(), "{key}");
        }
        let entry = with(
            r#""may_ask":[],"methods":["x/y"],"record":"full","result_limit":"1M","contract":"/c.json","attempts":1,
            "prefix":false,"disabled":true,"tools":{"idempotent":["get_*"],"confirm_destructive":true}"#,
        )
        .unwrap();
        assert!(entry.may_ask.is_empty() && entry.record_full && entry.disabled && !entry.prefix);
        assert_eq!((entry.attempts, entry.result_limit), (1, Some(1 << 20)));
        assert!(entry.tools.confirm_destructive.is_some());
    }

    #[test]
    fn keys_of_users_go_with_no_shared_process() {
        let ssh = |more: &str| {
            one(&format!(
                r#"{{"ssh":{{"host":"build1","server":"git","keys":"/k"}}{more}}}"#
            ))
        };
        assert_eq!(ssh("").unwrap().ssh().unwrap().host, "build1");
        assert!(ssh(r#","isolation":"user","type":"stdio""#).is_ok());
        let refused = ssh(r#","isolation":"shared""#).unwrap_err().to_string();
        assert!(refused.contains("cannot share a process"), "{refused}");
        for beside in [r#""type":"http""#, r#""headers":{}"#, r#""oauth":{}"#] {
            assert!(ssh(&format!(",{beside}")).is_err(), "{beside}");
        }
    }

    #[test]
    fn every_known_key_is_read_by_somebody() {
        // A key that is known but read by nobody would be accepted in silence: each must be refused
        // at a wrong kind.
        for key in ENTRY_KEYS.iter().filter(|key| **key != "command") {
            assert!(with(&format!("\"{key}\":[[]]")).is_err(), "{key}");
        }
    }

    fn scalar() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|b| b.to_string()),
            any::<i64>().prop_map(|n| n.to_string()),
            any::<f64>()
                .prop_filter("finite", |n| n.is_finite())
                .prop_map(|n| format!("{n:?}")),
            any::<String>().prop_map(|s| serde_json::to_string(&s).unwrap()),
            "[/a-zA-Z0-9|,=.*]{0,12}".prop_map(|s| serde_json::to_string(&s).unwrap()),
            Just("[]".to_owned()),
            Just("{}".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn sizes_are_powers_of_1024(n in 1u64..=1024, unit in 0usize..5) {
            let text = format!("\"result_limit\":\"{n}{}\"", ["", "K", "M", "G", "T"][unit]);
            prop_assert_eq!(with(&text).unwrap().result_limit, Some(n << (10 * unit)));
        }

        #[test]
        fn any_value_at_any_key_is_read_or_refused_in_its_place(
            key in prop::sample::select(ENTRY_KEYS), value in scalar(),
        ) {
            if let Err(error) = with(&format!("\"{key}\":{value}")) {
                prop_assert!(error.path.starts_with("servers.s"));
            }
        }

        #[test]
        fn errors_never_show_a_value(secret in "SECRET[a-z,= /]{8}", key in prop::sample::select(ENTRY_KEYS)) {
            for text in [format!("\"{key}\":\"{secret}\""), format!("\"{key}\":[\"{secret}\",\"{secret}\",1]"),
                format!("\"{key}\":{{\"x\":\"{secret}\"}}"), format!("\"x\":\"{secret}\"")] {
                if let Err(error) = with(&text) {
                    prop_assert!(!error.to_string().contains("SECRET"), "{}", error);
                }
            }
        }
    }
}
