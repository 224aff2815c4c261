use super::tools::{CALL_TOOL, EXTERNAL_CALL_TOOL};
use super::*;
use crate::board::{Board, BoardActor};
use crate::results::{ResultOwner, Results};
use colibri_api::script::RUN_SCRIPT;
use colibri_api::{
    CostMode, CostSetBy, CostUsage, DaemonFacts, FoundTool, FoundTools, NewTask, OpenGates,
    RegistryFacts, ServerFacts, ServerIsolation, ServerJail, ServerProcess, ServerState,
    ServerTransport, TaskShare, TaskStatus, UnseenServer,
};
use colibri_policy::Gate;
use colibri_protocol::Version;
use colibri_store::{Database, MAX_DESCRIPTION, MAX_PAGE, MAX_TITLE};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::cell::Cell;
use std::sync::Arc;
use tempfile::TempDir;

/// A daemon with two servers, one of them hostile.
fn view(open: bool, mode: CostMode) -> DaemonView {
    let github = ServerFacts {
        id: "github".to_owned(),
        transport: ServerTransport::Jail,
        state: ServerState::Ready,
        reason: None,
        since: 1_795_000_000_000,
        isolation: ServerIsolation::User,
        tools: 2,
        prompts: 1,
        resources: 0,
        templates: 0,
        tools_blocked: 1,
        others_blocked: 0,
        instructions_blocked: false,
        processes: vec![ServerProcess {
            pid: Some(77),
            uid: Some(1001),
            in_flight: 1,
            version: Some("2025-11-25".to_owned()),
            started: 1_795_000_000_000,
            count: Some(2),
            jail: Some("colibri-0123456789abcdef".to_owned()),
            jid: Some(4),
            unbounded: true,
        }],
        jail: Some(ServerJail {
            name: "ephemeral".to_owned(),
            network: "none".to_owned(),
        }),
        elsewhere: None,
    };
    let docs = ServerFacts {
        id: "docs".to_owned(),
        transport: ServerTransport::Url,
        state: ServerState::BackingOff,
        reason: Some("stderr: \u{1b}[2Jcannot connect\nGates: write open".to_owned()),
        processes: Vec::new(),
        jail: None,
        elsewhere: None,
        ..github.clone()
    };
    DaemonView {
        daemon: DaemonFacts {
            version: "0.1.0".to_owned(),
            uptime_s: 93_784,
            socket: "/var/run/colibri/colibri.sock".to_owned(),
            gates: OpenGates {
                write: open,
                external_call: open,
            },
            private: false,
            require_jail: true,
            clients: 1,
            clients_http: 0,
            http_sessions: 0,
            cost_mode: mode,
            budgets: mode.budgets(),
            spending: CostUsage {
                acts: true,
                set_by: CostSetBy::User,
                set: mode,
                escalates: false,
                spent_bytes: 1,
                left_bytes: Some(mode.budgets().session_bytes - 1),
                until: Some(1_795_000_000_000),
                ..CostUsage::default()
            },
            registry: RegistryFacts {
                path: "/usr/local/etc/colibri/external-mcp.json".to_owned(),
                error: Some(
                    "line 3, column 7: unknown key \"jial\", did you mean \"jail\"?".to_owned(),
                ),
            },
            trail_error: None,
            approvals_waiting: 1,
            agents_by_state: Default::default(),
            agents_unbounded: 0,
            collisions: vec!["build: tool git__status is offered by git already".to_owned()],
            look_alikes: vec!["servers docs and d0cs could be taken for each other".to_owned()],
        },
        servers: vec![docs, github],
    }
}

/// A store, skills and the daemon for calls.
struct Bench {
    state: TempDir,
    mode: Cell<Option<CostMode>>,
    board: Arc<Board>,
    /// The agent's instance that calls; `None`: the person.
    agent: Option<(&'static str, &'static str)>,
    results: Results,
    skills: SkillDirectories,
    open: bool,
    external: Vec<(&'static str, &'static str, Vec<u8>)>,
}

impl Bench {
    fn new(open: bool) -> Self {
        let state = tempfile::tempdir().unwrap();
        let skill = state.path().join("skills/pdf");
        std::fs::create_dir_all(&skill).unwrap();
        std::fs::write(
            skill.join("SKILL.md"),
            "---\nname: pdf\ndescription: Reads PDFs\n---\n",
        )
        .unwrap();
        std::fs::create_dir(state.path().join("skills/empty")).unwrap();
        let skills = SkillDirectories::new(vec![state.path().join("skills")]);
        let store = Arc::new(Database::open(&state.path().join("state")).unwrap());
        let board = Board::for_tests(store.clone(), &state.path().join("state"));
        let limits = crate::results::ResultLimits {
            per_user: 1 << 20,
            total: 1 << 20,
        };
        let results = Results::open(state.path(), limits).unwrap();
        let external = vec![
            (
                "github",
                "search",
                b"{\"name\":\"search\",\"title\":\"Search\",\"description\":\"Finds\\u202e\\nmore\",\n\
                  \"inputSchema\":{\"type\":\"object\", \"maximum\":18446744073709551616, \"x\":1e400}}"
                    .to_vec(),
            ),
            (
                "docs",
                "bad",
                b"{\"name\":1,\"description\":[],\"inputSchema\":null}".to_vec(),
            ),
            ("docs", "broken", b"\xff".to_vec()),
        ];
        Self {
            state,
            mode: Cell::default(),
            board,
            agent: None,
            results,
            skills,
            open,
            external,
        }
    }

    fn offered(&self) -> AdvertisedTools {
        let tools = self
            .external
            .iter()
            .map(|(server, tool, definition)| ExternalTool {
                name: format!("{server}__{tool}"),
                server: (*server).to_owned(),
                tool: (*tool).to_owned(),
                definition: definition.clone().into(),
            });
        AdvertisedTools {
            servers: vec!["docs".to_owned(), "github".to_owned()],
            tools: tools.collect(),
            unseen: vec![UnseenServer {
                server: "docs".to_owned(),
                state: ServerState::Failed,
                reason: Some("cannot run \u{1b}x".to_owned()),
            }],
        }
    }

    fn owner(&self) -> ResultOwner {
        ResultOwner {
            uid: 1001,
            session: self.agent.map(|(_, session)| session.into()),
        }
    }

    fn call(&self, name: &str, arguments: &[u8]) -> ToolOutcome {
        let tool = definition(name).unwrap();
        let context = BuiltinContext {
            look: &|| view(self.open, self.mode.get().unwrap_or_default()),
            offered: &|| self.offered(),
            set_cost_mode: &|mode| {
                self.mode.set(mode);
                Ok(())
            },
            server_meant: &|named| Ok(named.to_owned()),
            find: &|query, server, limit| {
                let tools = self
                    .external
                    .iter()
                    .filter(|(id, ..)| server.is_none_or(|server| server == *id));
                let found = tools
                    .clone()
                    .take(limit)
                    .map(|(server, tool, _)| FoundTool {
                        name: format!("{server}__{tool}"),
                        server: (*server).to_owned(),
                        description: query.to_owned(),
                    });
                Ok(FoundTools {
                    tools: found.collect(),
                    left_out: tools.count().saturating_sub(limit) as u64,
                    words_left_out: 2,
                    not_seen: self.offered().unseen,
                })
            },
            definition: &|name| {
                let mut tools = self.offered().tools.into_iter();
                tools.find_map(|tool| (tool.name == name).then_some(tool.definition))
            },
            board: &self.board,
            share: &|_| Ok(TaskShare::All),
            skills: &self.skills,
            results: (&self.results, Some(LIMIT)),
            owner: &self.owner(),
            flow: None,
            who: BoardActor {
                uid: 1001,
                agent: self.agent,
                operator: false,
                groups: None,
            },
        };
        call(tool, Some(arguments), &context)
    }

    /// Calls, asserts success, and returns structured content and summary, after checking what
    /// every answer must be.
    fn ok(&self, name: &str, arguments: Value) -> (Value, String) {
        let outcome = self.call(name, arguments.to_string().as_bytes());
        let result = String::from_utf8(outcome.result).unwrap();
        assert!(!outcome.is_error, "{result}");
        assert!(!result.contains('\n'));
        // The hostile schema holds a number that a Value cannot.
        let result: Value = serde_json::from_str(&result.replace("1e400", "1e40")).unwrap();
        let structured = result["structuredContent"].clone();
        let text = result["content"].as_array().unwrap().last().unwrap()["text"]
            .as_str()
            .unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(text).unwrap(),
            structured,
            "the text is the structured content"
        );
        let schema = parsed(name)["outputSchema"].clone();
        if let Err(error) = jsonschema::validate(&schema, &structured) {
            panic!("{name}: {error}: {structured}");
        }
        (
            structured,
            result["content"][0]["text"].as_str().unwrap().to_owned(),
        )
    }

    /// Calls, asserts an error, and returns its data and text.
    fn refused(&self, name: &str, arguments: &[u8]) -> (Value, String) {
        error_of(self.call(name, arguments))
    }
}

fn error_of(outcome: ToolOutcome) -> (Value, String) {
    let result: Value = serde_json::from_slice(&outcome.result).unwrap();
    assert!(outcome.is_error && result["isError"] == true, "{result}");
    assert!(result.get("structuredContent").is_none());
    (
        result["_meta"]["org.colibri/error"].clone(),
        result["content"][0]["text"].as_str().unwrap().to_owned(),
    )
}

fn parsed(name: &str) -> Value {
    serde_json::from_slice(&definition(name).unwrap().json).unwrap()
}

const READ: [(&str, Gate); 10] = [
    ("colibri_find_tools", Gate::None),
    ("colibri_tool_schema", Gate::None),
    ("colibri_read_result", Gate::None),
    ("colibri_get_task", Gate::None),
    ("colibri_status", Gate::None),
    ("colibri_snapshot", Gate::None),
    ("colibri_list_tasks", Gate::None),
    ("colibri_list_skills", Gate::None),
    ("colibri_external_mcp_servers", Gate::None),
    ("colibri_external_mcp_list_tools", Gate::None),
];
const GATED: [(&str, Gate); 13] = [
    ("colibri_schedule_task", Gate::Write),
    ("colibri_next_task", Gate::Write),
    ("colibri_start_task", Gate::Write),
    ("colibri_finish_task", Gate::Write),
    ("colibri_fail_task", Gate::Write),
    ("colibri_release_task", Gate::Write),
    ("colibri_cancel_task", Gate::Write),
    ("colibri_create_task", Gate::Write),
    ("colibri_intake_task", Gate::Write),
    ("colibri_set_cost_mode", Gate::Write),
    (EXTERNAL_CALL_TOOL, Gate::External),
    (CALL_TOOL, Gate::External),
    (RUN_SCRIPT, Gate::External),
];
/// Tools that answer with other people's words alone.
const WITHOUT_OUTPUT_SCHEMA: [&str; 5] = [
    RUN_SCRIPT,
    "colibri_read_result",
    "colibri_tool_schema",
    EXTERNAL_CALL_TOOL,
    CALL_TOOL,
];

#[test]
fn the_tools_are_defined_as_the_design_says() {
    assert_eq!(definitions().len(), READ.len() + GATED.len());
    for (name, gate) in READ.into_iter().chain(GATED) {
        let definition = definition(name).unwrap();
        let json = parsed(name);
        assert_eq!(definition.gate, gate, "{name}");
        assert_eq!(json["name"], name);
        assert!(!definition.json.contains(&b'\n'));
        assert!(json["title"].is_string() && json["description"].is_string());
        assert_eq!(
            json["annotations"]["readOnlyHint"],
            gate == Gate::None,
            "{name}"
        );
        assert_eq!(
            json["annotations"]["openWorldHint"],
            gate == Gate::External,
            "{name}"
        );
        assert_eq!(
            matches!(definition.route, BuiltinRoute::Relay),
            name == EXTERNAL_CALL_TOOL
        );
        assert_eq!(
            matches!(definition.route, BuiltinRoute::Named),
            name == CALL_TOOL
        );
        assert_eq!(
            matches!(definition.route, BuiltinRoute::Script),
            name == RUN_SCRIPT
        );
        assert_eq!(
            json["annotations"]["destructiveHint"] == true,
            gate == Gate::External,
            "{name}"
        );
        assert_eq!(
            json.get("outputSchema").is_none(),
            WITHOUT_OUTPUT_SCHEMA.contains(&name)
        );
        for schema in [Some(&json["inputSchema"]), json.get("outputSchema")]
            .into_iter()
            .flatten()
        {
            jsonschema::draft202012::meta::validate(schema).unwrap();
            assert_eq!(schema["type"], "object");
        }
        assert!(name.len() <= 46 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
    }
}

#[test]
fn a_list_for_those_who_find_tools_takes_few_tokens() {
    let servers: Vec<String> = (0..10)
        .map(|number| format!(" server{number}: read_file, list_directory."))
        .collect();
    let servers = format!(" Servers and some tools:{}", servers.concat());
    let listed = definitions()
        .iter()
        .filter(|definition| definition.rules.always_listed)
        .map(|definition| {
            let more = if definition.name == FIND_TOOLS {
                &*servers
            } else {
                ""
            };
            definition.listed_briefly(Version::LATEST, more)
        });
    let list = listed.collect::<Vec<_>>().join(&b","[..]);
    let tokens = tiktoken_rs::o200k_base()
        .unwrap()
        .encode_ordinary(std::str::from_utf8(&list).unwrap())
        .len();
    println!("{tokens} tokens");
    assert!(tokens <= 900, "{tokens} tokens");
}

#[test]
fn status_and_snapshot_tell_all_and_match_their_schemas() {
    let bench = Bench::new(true);
    bench.ok("colibri_create_task", json!({"title": "t"}));
    let (status, text) = bench.ok("colibri_status", json!({}));
    assert_eq!(status["servers"]["total"], 2);
    assert_eq!(status["servers"]["by_state"]["backing off"], 1);
    assert_eq!(
        status["gates"],
        json!({"write": true, "external_call": true})
    );
    assert_eq!(status["cost_mode"], "smart");
    assert_eq!(
        status["budgets"],
        json!({"session_bytes": 2_000_000, "uncompacted_turns": 20, "tool_result_bytes": 16_000})
    );
    assert!(
        text.contains("up 1 d 2 h, 1 client connected")
            && text.contains("2 (1 ready, 1 backing off)"),
        "{text}"
    );
    assert!(text.contains("did you mean"), "{text}");

    let (snapshot, text) = bench.ok("colibri_snapshot", json!({}));
    assert_eq!(snapshot["tasks_by_status"]["queued"], 1);
    assert_eq!(snapshot["servers"].as_array().unwrap().len(), 2);
    assert!(text.contains("Tasks: 1 (1 queued)"), "{text}");
}

#[test]
fn a_server_cannot_forge_lines_of_a_summary() {
    let (servers, text) = Bench::new(false).ok("colibri_external_mcp_servers", json!({}));
    assert_eq!(servers["servers"][1]["processes"][0]["pid"], 77);
    assert!(
        text.contains("\\u{1b}[2Jcannot connect\\nGates: write open"),
        "{text}"
    );
    assert!(
        !text.lines().any(|line| line.starts_with("Gates")),
        "{text}"
    );
    assert!(
        text.contains(
            "github: ready, 2 tools, 1 prompt, 1 process, jail ephemeral, network none, unbounded mount, 1 tool is blocked: \
             not as approved. Run: colibri-mcp pin diff github"
        ),
        "{text}"
    );
}

#[test]
fn external_tools_are_listed_with_their_schemas_as_written() {
    let bench = Bench::new(false);
    let raw = bench.call("colibri_external_mcp_list_tools", b"{}").result;
    let wanted = r#""input_schema":{"type":"object", "maximum":18446744073709551616, "x":1e400}"#;
    assert!(String::from_utf8(raw).unwrap().contains(wanted));
    let (listed, text) = bench.ok("colibri_external_mcp_list_tools", json!({}));
    assert_eq!(
        (&listed["left_out"], &listed["unlistable"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(listed["tools"][0]["title"], "Search");
    assert_eq!(
        listed["tools"][1],
        json!({"name": "docs__bad", "server": "docs", "tool": "bad", "input_schema": {}})
    );
    assert!(text.contains("- github__search: Finds\\u{202e}"), "{text}");
    assert_eq!(listed["not_seen"][0]["server"], "docs");
    assert!(
        text.contains("docs (failed): its tools are not known yet: cannot run \\u{1b}x"),
        "{text}"
    );

    let (listed, _) = bench.ok(
        "colibri_external_mcp_list_tools",
        json!({"server": "github"}),
    );
    assert_eq!(listed["not_seen"], json!([]));
    assert_eq!(
        (
            listed["tools"].as_array().unwrap().len(),
            &listed["left_out"]
        ),
        (1, &json!(0))
    );
    let (error, text) = bench.refused(
        "colibri_external_mcp_list_tools",
        b"{\"server\":\"gitlab\"}",
    );
    assert_eq!(error["code"], "NO_SUCH_TOOL");
    assert!(text.contains("docs, github"), "{text}");
}

#[test]
fn what_is_found_is_a_line_each_whatever_servers_say() {
    let bench = Bench::new(false);
    let found = |arguments: Value| {
        let outcome = bench.call("colibri_find_tools", arguments.to_string().as_bytes());
        assert!(!outcome.is_error && !outcome.result.contains(&b'\n'));
        let result: Value = serde_json::from_slice(&outcome.result).unwrap();
        assert_eq!(result["content"].as_array().unwrap().len(), 1);
        let schema = &parsed("colibri_find_tools")["outputSchema"];
        jsonschema::validate(schema, &result["structuredContent"]).unwrap();
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        (result["structuredContent"].clone(), text)
    };
    let (some, text) = found(json!({"query": "a\n- evil\u{202e}", "limit": 2}));
    assert_eq!(
        (some["tools"].as_array().unwrap().len(), &some["left_out"]),
        (2, &json!(1))
    );
    assert!(
        text.starts_with("- github__search: a\\n- evil\\u{202e}\n- docs__bad"),
        "{text}"
    );
    assert!(
        text.contains("1 more fit") && text.contains("last 2 words") && text.contains("(failed)"),
        "{text}"
    );
    assert!(
        found(json!({"query": "x", "server": "none"}))
            .1
            .starts_with("No tool fits")
    );
    for wrong in [
        json!({}),
        json!({"query": ""}),
        json!({"query": "x".repeat(4001)}),
        json!({"query": ["x"]}),
        json!({"query": "x", "limit": 0}),
        json!({"query": "x", "limit": 51}),
        json!({"query": "x", "server": ""}),
        json!({"query": "x", "words": 1}),
    ] {
        let (error, _) = bench.refused("colibri_find_tools", wrong.to_string().as_bytes());
        assert_eq!(error["code"], "SCHEMA_INVALID", "{wrong}");
    }
}

#[test]
fn a_definition_is_shown_as_it_was_written() {
    let bench = Bench::new(false);
    let outcome = bench.call("colibri_tool_schema", b"{\"tool\":\"github__search\"}");
    let result: Value = serde_json::from_slice(&outcome.result).unwrap();
    assert_eq!(result["content"].as_array().unwrap().len(), 1);
    assert_eq!(
        result["content"][0]["text"].as_str().unwrap().as_bytes(),
        bench.external[0].2
    );
    // What is not there, whoever asks, and bytes that are no text.
    for name in [
        "github__nothing",
        "search",
        "",
        "\u{202e}\n\"",
        &"x".repeat(1024),
    ] {
        let (error, text) = bench.refused(
            "colibri_tool_schema",
            json!({ "tool": name }).to_string().as_bytes(),
        );
        assert_eq!(
            error["code"],
            if name.is_empty() {
                "SCHEMA_INVALID"
            } else {
                "NO_SUCH_TOOL"
            }
        );
        assert!(text.len() < 400 && !text.contains('\u{202e}'), "{text}");
    }
    let broken = bench.call("colibri_tool_schema", b"{\"tool\":\"docs__broken\"}");
    assert!(serde_json::from_slice::<Value>(&broken.result).is_ok());
}

#[test]
fn a_call_through_another_names_no_tool_that_calls_others() {
    let read = |text: &str| {
        parse_named_call(Some(text.as_bytes()))
            .map(|call| (call.tool, call.arguments.map(<[u8]>::to_vec)))
    };
    assert_eq!(read(r#"{"tool":"a__b"}"#), Ok(("a__b".to_owned(), None)));
    assert_eq!(
        read(r#"{"arguments":{"n": 1e400},"tool":"\u0061"}"#),
        Ok(("a".to_owned(), Some(br#"{"n": 1e400}"#.to_vec())))
    );
    for name in [CALL_TOOL, EXTERNAL_CALL_TOOL, r"colibri_call\u005ftool"] {
        let refused = read(&format!(r#"{{"tool":"{name}","arguments":{{}}}}"#))
            .unwrap_err()
            .to_string();
        assert!(refused.contains("cannot be called through"), "{refused}");
    }
    for wrong in [
        "{}",
        r#"{"tool":1}"#,
        r#"{"tool":""}"#,
        r#"{"tool":"a","tool":"b"}"#,
        r#"{"tool":"a","arguments":[]}"#,
        r#"{"tool":"a","arguments":null}"#,
        r#"{"tool":"a","server":"b"}"#,
        r#"["a"]"#,
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_list_of_huge_tools_stays_under_the_frame_limit() {
    let mut bench = Bench::new(false);
    let huge = format!(
        "{{\"inputSchema\":{{\"d\":\"{}\"}}}}",
        "\\\\".repeat(300_000)
    );
    bench.external = (0..20)
        .map(|_| ("github", "huge", huge.clone().into_bytes()))
        .collect();
    let outcome = bench.call("colibri_external_mcp_list_tools", b"{}");
    assert!(outcome.result.len() < 16 << 20, "{}", outcome.result.len());
    let (listed, _) = bench.ok("colibri_external_mcp_list_tools", json!({}));
    assert_eq!(
        (
            listed["tools"].as_array().unwrap().len(),
            &listed["left_out"]
        ),
        (6, &json!(14))
    );
    // What one lists leaves room for the others.
    bench
        .external
        .push(("zoo", "small", b"{\"inputSchema\":{}}".to_vec()));
    let (listed, _) = bench.ok("colibri_external_mcp_list_tools", json!({}));
    assert_eq!(
        listed["tools"].as_array().unwrap().last().unwrap()["server"],
        "zoo"
    );
    assert_eq!(listed["left_out"], 17);
}

#[test]
fn tasks_are_created_taken_in_and_listed() {
    let bench = Bench::new(true);
    let (created, text) = bench.ok(
        "colibri_create_task",
        json!({"title": "Fix \u{202e}it", "description": "a\n\tb", "source": "issue#7", "priority": 9,
            "required_capabilities": ["rust", "github:write"]}),
    );
    let task = &created["task"];
    assert_eq!(task["status"], "queued");
    assert_eq!(task["created_by"], 1001);
    assert_eq!(task["description"], "a\n\tb");
    assert!(
        text.contains("Created task 1 [queued, priority 9] Fix \\u{202e}it"),
        "{text}"
    );

    let text = format!("\n  Please look: {}\nmore", "ä".repeat(300));
    let (taken, _) = bench.ok("colibri_intake_task", json!({"text": text}));
    assert_eq!(taken["task"]["status"], "intake");
    assert_eq!(
        taken["task"]["title"].as_str().unwrap().chars().count(),
        MAX_TITLE
    );
    assert_eq!(taken["task"]["description"], text);
    assert_eq!(taken["task"]["source"], "mcp");

    let (page, summary) = bench.ok("colibri_list_tasks", json!({"limit": 1}));
    assert_eq!(page["tasks"], json!([taken["task"]]));
    assert!(summary.starts_with("1 task, more follow"), "{summary}");
    let (page, _) = bench.ok(
        "colibri_list_tasks",
        json!({"limit": 1, "cursor": page["next_cursor"]}),
    );
    assert_eq!(page, json!({"tasks": [task], "next_cursor": null}));
    let (page, _) = bench.ok(
        "colibri_list_tasks",
        json!({"status": "intake", "source": "mcp"}),
    );
    assert_eq!(page["tasks"].as_array().unwrap().len(), 1);

    let (error, text) = bench.refused("colibri_list_tasks", b"{\"cursor\":\"made up\"}");
    assert_eq!(error["code"], "SCHEMA_INVALID");
    assert!(text.contains("next_cursor"), "{text}");
}

#[test]
fn a_task_is_claimed_started_finished_and_its_result_read() {
    let bench = Bench::new(true);
    bench.ok(
        "colibri_create_task",
        json!({"title": "Fix it", "required_capabilities": ["rust"]}),
    );
    let (none, text) = bench.ok("colibri_next_task", json!({"capabilities": ["cobol"]}));
    assert_eq!(
        (&none, text.as_str()),
        (&json!({"task": null}), "No task can be claimed now.")
    );
    let (next, text) = bench.ok("colibri_next_task", json!({}));
    assert!(
        text.starts_with("Claim 1 of task 1 [claimed, priority 5] Fix it"),
        "{text}"
    );
    assert_eq!(next["task"]["claimed_by"], 1001);
    let (started, _) = bench.ok("colibri_start_task", json!({"task": 1, "claim": 1}));
    assert_eq!(started["task"]["status"], "started");
    let result = b"{\"task\":1,\"claim\":1,\"result\":{\"n\": 18446744073709551616,\n\"x\":1e400}}";
    assert!(!bench.call("colibri_finish_task", result).is_error);
    let raw = bench.call("colibri_get_task", b"{\"task\":1}").result;
    let raw = String::from_utf8(raw).unwrap();
    assert!(
        raw.contains("\"result\":{\"n\": 18446744073709551616, \"x\":1e400}")
            && !raw.contains('\n'),
        "{raw}"
    );
    let (error, text) = bench.refused("colibri_finish_task", result);
    assert_eq!(error["code"], "TASK_REFUSED");
    assert!(text.contains("task 1 is done"), "{text}");
    let (_, text) = bench.refused("colibri_cancel_task", b"{\"task\":1}");
    assert!(text.contains("task 1 is done"), "{text}");
}

#[test]
fn a_task_is_failed_released_cancelled_and_taken_in_with_capabilities() {
    let bench = Bench::new(true);
    bench.ok(
        "colibri_intake_task",
        json!({"text": "please", "capabilities": ["rust"]}),
    );
    assert_eq!(
        bench.ok("colibri_next_task", json!({})).0["task"],
        Value::Null
    );
    let (queued, _) = bench.ok("colibri_release_task", json!({"task": 1}));
    assert_eq!(queued["task"]["status"], "queued");
    assert_eq!(queued["task"]["required_capabilities"], json!(["rust"]));
    let (next, _) = bench.ok("colibri_next_task", json!({"task": 1}));
    assert_eq!(next["task"]["claim"], 1);
    let given = json!({"task": 1, "claim": 1, "reason": "no time"});
    let (back, text) = bench.ok("colibri_release_task", given);
    assert_eq!(
        (&back["task"]["status"], &back["task"]["attempts"]),
        (&json!("queued"), &json!(1))
    );
    assert!(text.contains("(no time)"), "{text}");
    bench.ok("colibri_next_task", json!({}));
    let given = json!({"task": 1, "claim": 2, "reason": "cannot be"});
    assert_eq!(
        bench.ok("colibri_fail_task", given).0["task"]["status"],
        "failed"
    );
    bench.ok("colibri_create_task", json!({"title": "t"}));
    let (listed, text) = bench.ok("colibri_list_tasks", json!({"status": "queued"}));
    assert_eq!(
        listed["tasks"][0]["waiting"],
        "no agent is there for uid 1001"
    );
    assert!(text.contains("no agent is there"), "{text}");
    let (over, _) = bench.ok(
        "colibri_cancel_task",
        json!({"task": 2, "reason": "not any more"}),
    );
    assert_eq!(
        (&over["task"]["status"], &over["task"]["reason"]),
        (&json!("cancelled"), &json!("not any more"))
    );
}

#[test]
fn a_result_is_bounded_and_a_number_out_of_range_is_named() {
    let bench = Bench::new(true);
    bench.ok("colibri_create_task", json!({"title": "t"}));
    bench.ok("colibri_next_task", json!({}));
    let finish = |length: usize| {
        json!({"task": 1, "claim": 1, "result": "x".repeat(length - 2)}).to_string()
    };
    for length in [16 << 20, (64 << 10) + 1] {
        let (error, text) = bench.refused("colibri_finish_task", finish(length).as_bytes());
        assert_eq!(error["code"], "SCHEMA_INVALID");
        assert!(
            text.contains(&format!(
                "argument result has {length} bytes, at most 65536 are allowed"
            )),
            "{text}"
        );
    }
    for task in [
        "0",
        "-1",
        "4294967296",
        "18446744073709551616",
        "1e400",
        "1.5",
        "\"1\"",
        "null",
    ] {
        for tool in [
            "colibri_get_task",
            "colibri_next_task",
            "colibri_cancel_task",
        ] {
            let (error, text) = bench.refused(tool, format!("{{\"task\":{task}}}").as_bytes());
            assert_eq!(error["code"], "SCHEMA_INVALID", "{task}");
            assert!(text.contains("argument task"), "{text}");
        }
    }
    let (error, text) = bench.refused("colibri_get_task", b"{\"task\":4294967295}");
    assert_eq!(error["code"], "TASK_REFUSED");
    assert!(text.contains("there is no task 4294967295"), "{text}");
    bench.ok(
        "colibri_finish_task",
        serde_json::from_str(&finish(64 << 10)).unwrap(),
    );
}

/// An agent that tries what is not its own.
#[test]
fn an_instance_has_nothing_but_the_task_that_it_claimed() {
    let mut bench = Bench::new(true);
    for (title, uid) in [("hers", 1001), ("his", 1002), ("hers, too", 1001)] {
        let new = NewTask {
            title: title.to_owned(),
            description: String::new(),
            source: "s".to_owned(),
            status: TaskStatus::Queued,
            required_capabilities: Vec::new(),
            priority: 5,
            created_by: uid,
            share: None,
            limits: Default::default(),
        };
        let creator = BoardActor {
            uid,
            agent: None,
            operator: false,
            groups: None,
        };
        bench.board.create(creator, new, None).unwrap();
    }
    bench.ok("colibri_next_task", json!({"task": 3}));
    bench.agent = Some(("coder", "00000000000000aa"));
    let (_, text) = bench.refused("colibri_next_task", b"{\"task\":2}");
    assert!(
        text.contains("must leave out task, capabilities and shared"),
        "{text}"
    );
    let (next, _) = bench.ok("colibri_next_task", json!({}));
    assert_eq!(
        (&next["task"]["id"], &next["task"]["claim"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        bench.ok("colibri_next_task", json!({})).0,
        next,
        "the one that it has"
    );
    let (listed, _) = bench.ok("colibri_list_tasks", json!({}));
    assert_eq!(
        listed["tasks"].as_array().unwrap().len(),
        2,
        "its person's alone"
    );
    for tool in [
        "colibri_start_task",
        "colibri_finish_task",
        "colibri_fail_task",
        "colibri_release_task",
    ] {
        let orders = [
            (2, 0, "there is no task 2"),
            (2, 1, "there is no task 2"),
            (3, 1, "claimed by uid 1001"),
            (1, 0, "claim 0 of task 1 is over"),
            (1, 2, "claim 2 of task 1 is over"),
            (9, 1, "there is no task 9"),
        ];
        assert_eq!(
            definition(tool).unwrap().at_door,
            Some(Gate::None),
            "no write gate is needed there"
        );
        for (task, claim, why) in orders {
            let mut given = json!({"task": task, "claim": claim});
            match tool {
                "colibri_finish_task" => given["result"] = json!("mine"),
                "colibri_start_task" => {}
                _ => given["reason"] = json!("mine"),
            }
            let (error, text) = bench.refused(tool, given.to_string().as_bytes());
            assert_eq!(error["code"], "TASK_REFUSED", "{tool} {task}");
            assert!(text.contains(why), "{text}");
        }
    }
    assert!(
        bench
            .refused("colibri_get_task", b"{\"task\":2}")
            .1
            .contains("there is no task 2")
    );
    assert!(
        bench
            .refused("colibri_release_task", b"{\"task\":1}")
            .1
            .contains("claim is missing")
    );
    for tool in [
        "colibri_create_task",
        "colibri_intake_task",
        "colibri_cancel_task",
        "colibri_schedule_task",
        "colibri_set_cost_mode",
    ] {
        assert_eq!(
            definition(tool).unwrap().at_door,
            None,
            "{tool} is not an agent's"
        );
    }
    bench.agent = Some(("coder", "00000000000000bb"));
    let (_, text) = bench.refused(
        "colibri_finish_task",
        b"{\"task\":1,\"claim\":1,\"result\":1}",
    );
    assert!(
        text.contains("claimed by the agent's instance 00000000000000aa"),
        "{text}"
    );
    assert_eq!(
        bench.ok("colibri_next_task", json!({})).0["task"],
        Value::Null
    );
    bench.agent = None;
    let (_, text) = bench.refused(
        "colibri_finish_task",
        b"{\"task\":1,\"claim\":1,\"result\":1}",
    );
    assert!(
        text.contains("claimed by the agent's instance"),
        "its person does not answer for it: {text}"
    );
}

#[test]
fn schedules_are_created_listed_and_deleted() {
    let bench = Bench::new(true);
    let given = json!({"action": "create", "cron": "0 3 * * mon", "title": "Clean up"});
    let (made, text) = bench.ok("colibri_schedule_task", given);
    assert_eq!(made["schedules"][0]["work"]["task"]["title"], "Clean up");
    assert!(text.contains("1 [0 3 * * mon] creates Clean up"), "{text}");
    let given =
        json!({"action": "create", "every_s": 60, "tool": "git__status", "arguments": {"n": 1}});
    bench.ok("colibri_schedule_task", given);
    let (listed, text) = bench.ok("colibri_schedule_task", json!({"action": "list"}));
    assert_eq!(listed["schedules"].as_array().unwrap().len(), 2);
    assert!(text.contains("2 [every 60 s] calls git__status"), "{text}");
    bench.ok(
        "colibri_schedule_task",
        json!({"action": "delete", "schedule": 1}),
    );
    for (given, why) in [
        (
            json!({"action": "create", "cron": "0 3 * * *"}),
            "either title or tool",
        ),
        (
            json!({"action": "create", "cron": "0 3 * * *", "title": "a", "tool": "b"}),
            "either title or tool",
        ),
        (
            json!({"action": "create", "title": "a"}),
            "one of cron, every_s and at",
        ),
        (
            json!({"action": "create", "title": "a", "every_s": 1, "at": "2100-01-01T00:00:00Z"}),
            "one of cron",
        ),
        (
            json!({"action": "create", "title": "a", "cron": "61 * * * *"}),
            "value must be in range 0..=59; found 61",
        ),
        (
            json!({"action": "create", "title": "a", "cron": "0 0 31 2 *"}),
            "never comes",
        ),
        (
            json!({"action": "create", "title": "a", "at": "1999-01-01T00:00:00Z"}),
            "is over",
        ),
        (
            json!({"action": "create", "tool": "a", "every_s": 5, "arguments": [1]}),
            "must be an object",
        ),
        (json!({"action": "delete"}), "schedule is missing"),
        (
            json!({"action": "delete", "schedule": 1}),
            "no schedule 1 of yours",
        ),
        (json!({"action": "run"}), "create, list, delete"),
    ] {
        let (_, text) = bench.refused("colibri_schedule_task", given.to_string().as_bytes());
        assert!(text.contains(why), "{given}: {text}");
    }
    for _ in 0..99 {
        bench.ok(
            "colibri_schedule_task",
            json!({"action": "create", "every_s": 5, "title": "t"}),
        );
    }
    let full = b"{\"action\":\"create\",\"every_s\":5,\"title\":\"t\"}";
    assert!(
        bench
            .refused("colibri_schedule_task", full)
            .1
            .contains("100 of one user")
    );
}

#[test]
fn the_largest_page_stays_under_the_frame_limit() {
    let bench = Bench::new(true);
    let description = "\u{10ffff}".repeat(MAX_DESCRIPTION);
    let escaped = "\\\"".repeat(MAX_DESCRIPTION / 2);
    for number in 0..MAX_PAGE {
        let description = if number % 2 == 0 {
            &description
        } else {
            &escaped
        };
        bench.ok(
            "colibri_create_task",
            json!({"title": "t", "description": description}),
        );
    }
    let arguments = json!({"limit": MAX_PAGE}).to_string();
    assert!(
        bench
            .call("colibri_list_tasks", arguments.as_bytes())
            .result
            .len()
            < 12 << 20
    );
}

#[test]
fn skills_are_listed_with_what_is_wrong() {
    let (found, text) = Bench::new(false).ok("colibri_list_skills", json!({}));
    assert_eq!(found["skills"][0]["name"], "pdf");
    assert!(
        found["problems"][0]["why"]
            .as_str()
            .unwrap()
            .contains("has no SKILL.md")
    );
    assert!(
        text.contains("- pdf: Reads PDFs") && text.contains("cannot be used"),
        "{text}"
    );
}

/// The most bytes that calls of these tests may be answered with.
const LIMIT: relay::cost::AnswerLimit = relay::cost::AnswerLimit {
    result: 4000,
    of: "of the cost mode",
    unkept: 4000,
    whole: Some(100_000),
};

/// A piece of a kept result, and where the next begins.
fn piece_of(result: &[u8]) -> (String, Option<u64>) {
    let answer: Value = serde_json::from_slice(result).unwrap();
    let text = answer["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"));
    (
        text.to_owned(),
        answer["_meta"]["org.colibri/next"].as_u64(),
    )
}

#[test]
fn a_kept_result_is_read_in_pieces_no_longer_than_the_mode_allows() {
    let mut bench = Bench::new(false);
    let whole = format!(
        r#"{{"content":[{{"type":"text","text":"one\ntwo\nthree"}}],"more":"{}"}}"#,
        "é".repeat(5000)
    );
    let kept = bench
        .results
        .keep(&bench.owner(), whole.as_bytes())
        .unwrap();
    let handle = kept.handle.to_string();
    let read = |more: Value| {
        let mut given = json!({"handle": handle});
        given
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        piece_of(
            &bench
                .call("colibri_read_result", given.to_string().as_bytes())
                .result,
        )
    };
    let (text, next) = read(json!({"length": 1_000_000}));
    assert!(
        (3_600..4_000).contains(&text.len()),
        "4,000 in all: {}",
        text.len()
    );
    assert_eq!(next, Some(text.len() as u64));
    let is = |text: &str, next| (text.to_owned(), next);
    assert_eq!(
        read(json!({})),
        is("one\ntwo\nthree", None),
        "lines, where there is text"
    );
    assert_eq!(read(json!({"offset": 2})), is("three", None));
    assert_eq!(read(json!({"lines": 2})), is("one\ntwo", Some(2)));
    assert_eq!(read(json!({"lines": 2, "offset": 2})), is("three", None));
    assert_eq!(
        read(json!({"pattern": "^t"})),
        is("1: two\n2: three\n", None)
    );
    assert_eq!(
        read(json!({"json_pointer": "/content/0/type"})),
        is("\"text\"", None)
    );
    assert_eq!(
        read(json!({"length": 9, "offset": whole.len() - 1})),
        is("}", None)
    );
    for (whole, more, read_as) in [
        (
            r#"{"structuredContent":{"n":1}}"#,
            json!({"offset": 22}),
            r#""n":1}}"#,
        ),
        (
            r#"{"content":[{"type":"image","data":"AAAA"}]}"#,
            json!({"length": 4}),
            r#"{"co"#,
        ),
    ] {
        let kept = bench
            .results
            .keep(&bench.owner(), whole.as_bytes())
            .unwrap();
        let mut given = json!({"handle": kept.handle.to_string()});
        given
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let piece = piece_of(
            &bench
                .call("colibri_read_result", given.to_string().as_bytes())
                .result,
        );
        assert_eq!(piece.0, read_as);
    }
    let image = br#"{"content":[{"type":"image","data":"AAAA"}]}"#;
    let image = bench
        .results
        .keep(&bench.owner(), image)
        .unwrap()
        .handle
        .to_string();
    let (_, text) = bench.refused(
        "colibri_read_result",
        json!({"handle": image}).to_string().as_bytes(),
    );
    assert!(
        text.contains("read an image, sound or file of it with block"),
        "{text}"
    );
    assert_eq!(
        bench
            .call(
                "colibri_read_result",
                json!({"handle": handle, "block": 0}).to_string().as_bytes()
            )
            .result,
        br#"{"content":[{"type":"text","text":"one\ntwo\nthree"}]}"#
    );
    for (more, why) in [
        (json!({"length": 1, "offset": 1_000_000}), "beyond the end"),
        (json!({"lines": 1, "offset": 4}), "there are 3 lines"),
        (
            json!({"lines": 1, "pattern": "x"}),
            "only one of lines, json_pointer and pattern",
        ),
        (
            json!({"pattern": "("}),
            "argument pattern is no regular expression",
        ),
        (
            json!({"pattern": "(a)\\1"}),
            "argument pattern is no regular expression",
        ),
        (
            json!({"pattern": "((a{99}){99}){99}"}),
            "argument pattern is too large",
        ),
        (
            json!({"json_pointer": "a"}),
            "argument json_pointer must be empty or begin with /",
        ),
        (json!({"json_pointer": "/x"}), "there is no"),
        (json!({"block": 1}), "there is no block 1"),
        (
            json!({"block": 0, "lines": 1}),
            "block cannot be given with",
        ),
        (json!({"length": 0}), "must be from 1"),
        (json!({"offset": -1}), "must be from 0"),
    ] {
        let mut given = json!({"handle": handle});
        given
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (error, text) = bench.refused("colibri_read_result", given.to_string().as_bytes());
        assert_eq!(error["code"], "SCHEMA_INVALID");
        assert!(text.contains(why), "{given}: {text}");
    }
    let given = json!({"handle": handle}).to_string();
    bench.agent = Some(("coder", "00000000000000aa"));
    let others = bench.refused("colibri_read_result", given.as_bytes());
    let guessed = bench.refused(
        "colibri_read_result",
        b"{\"handle\":\"0123456789abcdef0123456789abcdef\"}",
    );
    assert_eq!(others, guessed);
    assert_eq!(guessed.0["code"], "NO_SUCH_RESULT");
}

#[test]
fn the_answer_with_a_piece_is_within_the_limit_whatever_is_escaped_in_it() {
    let bench = Bench::new(false);
    for part in ["x", "\"", "\\", "\n", "\u{1}", "\u{1f426}", "\" \n\\"] {
        let text = part.repeat(1_500);
        let whole = json!({"content": [{"type": "text", "text": text}], "deep": text}).to_string();
        let kept = bench
            .results
            .keep(&bench.owner(), whole.as_bytes())
            .unwrap();
        for more in [
            json!({}),
            json!({"length": 1_000_000}),
            json!({"json_pointer": "/deep"}),
            json!({"lines": 1_000_000}),
            json!({"pattern": "^|."}),
        ] {
            let (mut read, mut next) = (String::new(), Some(0));
            while let Some(offset) = next {
                let mut given = json!({"handle": kept.handle.to_string(), "offset": offset});
                given
                    .as_object_mut()
                    .unwrap()
                    .extend(more.as_object().unwrap().clone());
                let result = bench
                    .call("colibri_read_result", given.to_string().as_bytes())
                    .result;
                assert!(result.len() <= 4_000, "{part:?} {more}: {}", result.len());
                let (text, after) = piece_of(&result);
                read.push_str(&text);
                assert!(after.is_none() || after > next, "{after:?}");
                next = after;
            }
            if more == json!({"length": 1_000_000}) {
                assert_eq!(read, whole);
            }
        }
    }
}

#[test]
fn a_cost_mode_is_set_and_taken_back() {
    let bench = Bench::new(true);
    let (set, _) = bench.ok("colibri_set_cost_mode", json!({"mode": "max"}));
    assert_eq!(set["budgets"]["tool_result_bytes"], Value::Null);
    assert_eq!(bench.ok("colibri_status", json!({})).0["cost_mode"], "max");
    let (set, text) = bench.ok("colibri_set_cost_mode", json!({"mode": "default"}));
    assert_eq!(
        (&set["mode"], &set["spending"]["left_bytes"]),
        (&json!("smart"), &json!(1_999_999))
    );
    assert!(
        text.contains("1 byte used today (UTC), 1999999 left"),
        "{text}"
    );
    let stands = |before, left, larger| {
        let mut view = view(false, CostMode::Fast).daemon;
        view.spending = CostUsage {
            spent_bytes: 3_200_000,
            before_bytes: before,
            chosen_at: Some(colibri_store::now_ms()),
            left_bytes: Some(left),
            larger,
            ..view.spending
        };
        cost_summary::cost(&view)
    };
    let text = stands(3_200_000, 500_000, Some(CostMode::Smart));
    let says = "3200000 bytes used today (UTC), 3200000 of them before the mode was chosen at ";
    assert!(
        text.contains(says) && text.ends_with(" UTC, which do not count, 500000 left"),
        "{text}"
    );
    let advice = "cost mode smart (colibri_set_cost_mode) acts at once";
    assert!(stands(0, 0, Some(CostMode::Smart)).ends_with(advice));
    assert!(
        stands(0, 0, None).ends_with("Colibri's own tools are not"),
        "a larger mode that there is not"
    );
    let (_, text) = bench.refused("colibri_set_cost_mode", b"{\"mode\":\"cheap\"}");
    assert!(
        text.contains("one of fast, smart, max, default, not \"cheap\""),
        "{text}"
    );
    let (_, text) = bench.refused("colibri_set_cost_mode", b"{}");
    assert!(text.contains("argument mode is missing"), "{text}");
}

#[test]
fn a_store_that_fails_is_an_answer() {
    let bench = Bench::new(true);
    let other = rusqlite::Connection::open(bench.state.path().join("state/colibri.db")).unwrap();
    other
        .execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
             INSERT INTO tasks (id, title, description, source, status, required_capabilities, priority, created_by,
                 created_at, updated_at)
             SELECT i, 't', '', 's', 'queued', '[]', 5, 0, 0, 0 FROM n",
            [100_000],
        )
        .unwrap();
    assert_eq!(
        bench.refused("colibri_create_task", b"{\"title\":\"t\"}").0["code"],
        "TASK_REFUSED"
    );
    other.execute_batch("DROP TABLE tasks").unwrap();
    let (error, text) = bench.refused("colibri_list_tasks", b"{}");
    assert_eq!(error["code"], "STORE_UNAVAILABLE");
    assert!(text.contains("colibri.db"), "{text}");
}

#[test]
fn what_is_not_there_is_named() {
    let (error, text) = error_of(refused(no_such_tool("github", "delete\u{202e}", true)));
    assert_eq!(
        (&error["code"], &error["server"]),
        (&json!("NO_SUCH_TOOL"), &json!("github"))
    );
    assert!(
        text.contains("\\u{202e}") && text.contains("colibri_external_mcp_list_tools"),
        "{text}"
    );
    let (error, text) = error_of(refused(no_such_tool("gitlab", "x", false)));
    assert!(
        error.get("server").is_none() && text.contains("no server \"gitlab\""),
        "{text}"
    );
}

#[test]
fn an_external_call_keeps_its_arguments_byte_for_byte() {
    let raw = br#" {"tool":"a/\u00e4 b", "arguments": {"n": 1e400, "s":"\ud800", "n":2 } ,"server":"github"}"#;
    let call = parse_external_call(Some(raw)).unwrap();
    assert_eq!(
        (call.server.as_str(), call.tool.as_str()),
        ("github", "a/ä b")
    );
    let span = call.arguments.unwrap();
    assert_eq!(span, br#"{"n": 1e400, "s":"\ud800", "n":2 }"#);
    assert!(
        raw.as_ptr_range().contains(&span.as_ptr()),
        "a part of what was parsed"
    );
    assert_eq!(
        parse_external_call(Some(br#"{"server":"a","tool":"b"}"#))
            .unwrap()
            .arguments,
        None
    );

    for (json, wanted) in [
        (r#"{"tool":"b"}"#, "server is missing"),
        (r#"{"server":"a"}"#, "tool is missing"),
        (
            r#"{"server":"a","tool":"b","arguments":null}"#,
            "must be an object",
        ),
        (
            r#"{"server":"a","tool":"b","arguments":"{}"}"#,
            "must be an object",
        ),
        (r#"{"server":"a","tool":"b","args":{}}"#, "unknown argument"),
        (
            r#"{"server":"a","tool":"b","argument":{}}"#,
            "did you mean arguments?",
        ),
        (r#"{"server":"a","server":"b","tool":"b"}"#, "given twice"),
        (r#"{"server":1,"tool":"b"}"#, "must be a string"),
        (r#"{"server":"a","tool":""}"#, "has 0 characters"),
    ] {
        let error = parse_external_call(Some(json.as_bytes())).unwrap_err();
        assert!(error.to_string().contains(wanted), "{json}: {error}");
        assert_eq!(error_of(error.outcome()).0["code"], "SCHEMA_INVALID");
    }
}

/// Arguments near the edges of what the schemas allow, and a little beyond.
fn arguments() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-1_i64..102).prop_map(Value::from),
        Just(json!(5.0)),
        Just(json!(5.5)),
        "[a-z#é ]{0,4}".prop_map(Value::from),
        proptest::sample::select(vec!["queued", "fast", "max", "done"]).prop_map(Value::from),
        (198_usize..203).prop_map(|n| Value::from("ä".repeat(n))),
        (63_usize..66).prop_map(|n| Value::from("a".repeat(n))),
        proptest::collection::vec("[ab]{0,2}", 0..4).prop_map(Value::from),
        proptest::collection::vec("[a-z]{7}", 15..18).prop_map(Value::from),
        Just(json!({})),
    ];
    let name = proptest::sample::select(vec![
        "title",
        "description",
        "source",
        "priority",
        "required_capabilities",
        "text",
        "mode",
        "status",
        "limit",
        "server",
        "other",
    ]);
    proptest::collection::vec((name, value), 0..3).prop_map(Value::from_iter)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The reader accepts exactly what the schema that clients see allows, for every tool.
    #[test]
    fn the_reader_and_the_schema_agree(given in proptest::collection::vec(arguments(), 100)) {
        let bench = Bench::new(true);
        for (name, _) in READ.into_iter().chain(GATED) {
            let schema = jsonschema::validator_for(&parsed(name)["inputSchema"]).unwrap();
            for given in &given {
                let valid = schema.is_valid(given);
                // The one rule beyond the schema: a text to take in must have something in it.
                if name == "colibri_intake_task" && given["text"].as_str().is_some_and(|text| text.trim().is_empty()) {
                    continue;
                }
                let taken = match definition(name).unwrap().route {
                    BuiltinRoute::Relay => parse_external_call(Some(given.to_string().as_bytes())).is_ok(),
                    BuiltinRoute::Named => parse_named_call(Some(given.to_string().as_bytes())).is_ok(),
                    BuiltinRoute::Script => parse_run_script(given.to_string().as_bytes()).is_ok(),
                    BuiltinRoute::Here(_) => {
                        let outcome = bench.call(name, given.to_string().as_bytes());
                        !outcome.is_error || error_of(outcome).0["code"] != "SCHEMA_INVALID"
                    }
                };
                prop_assert_eq!(taken, valid, "{} {}", name, given);
            }
        }
    }
}
