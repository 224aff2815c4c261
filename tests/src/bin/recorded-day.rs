//! Makes the trail of a day that never was, with the daemon's own writer: `recorded-day STATE_DIR
//! CALLS [hostile]`.
//!
//! The day ends now. Heads go to `STATE_DIR/heads.log`, as syslogd would have them. With `hostile`,
//! every text that a caller, an agent or a server chooses is one that an attacker would.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use colibri_trail::{
    Attempt, ContentDigest, Detail, DigestAlgorithm, Enter, EventRecord, ExitRecord, SegmentLimits,
    Through, Trail, TrailEvent, TrailHead, TrailOptions, TrailRecord, Witness,
};

const DAY: u64 = 86_400_000;

struct Log(PathBuf);

impl Witness for Log {
    fn witness(&self, head: &TrailHead) -> io::Result<()> {
        let mut log = File::options().append(true).create(true).open(&self.0)?;
        writeln!(log, "Nov 21 22:30:00 host colibri-mcpd[9]: {head}")
    }
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A server, and its tools: name, bytes of arguments, bytes of answers, milliseconds, each about.
type Server = (&'static str, &'static [(&'static str, u64, u64, u64)]);

const SERVERS: &[Server] = &[
    (
        "github",
        &[
            ("search_code", 180, 24_000, 620),
            ("get_file_contents", 120, 9000, 240),
            ("create_issue", 900, 700, 410),
            ("list_pull_requests", 90, 31_000, 380),
            ("create_pull_request", 2400, 1200, 700),
        ],
    ),
    (
        "postgres",
        &[
            ("query", 340, 5200, 18),
            ("explain", 300, 2100, 9),
            ("list_tables", 20, 1900, 4),
        ],
    ),
    (
        "files",
        &[
            ("read_file", 80, 6100, 2),
            ("write_file", 5200, 90, 3),
            ("search_files", 110, 3300, 26),
            ("list_directory", 60, 1400, 1),
        ],
    ),
    (
        "browser",
        &[
            ("navigate", 120, 2600, 1900),
            ("snapshot", 40, 48_000, 340),
            ("click", 90, 1100, 260),
        ],
    ),
    ("notes", &[("find", 70, 2100, 5), ("append", 480, 60, 6)]),
    (
        "colibri",
        &[
            ("colibri_status", 2, 900, 0),
            ("colibri_next_task", 20, 340, 1),
        ],
    ),
];
const REFUSALS: [&str; 6] = [
    "POLICY_DENIED",
    "GATE_CLOSED",
    "SCHEMA_INVALID",
    "APPROVAL_DENIED",
    "LIMIT_USER",
    "BUDGET_SPENT",
];
const FAILURES: [&str; 4] = [
    "TIMEOUT_CALL",
    "SERVER_DIED",
    "INTEGRATION_UNAVAILABLE",
    "-32603",
];
/// Whose agents those are: user and agent.
const AGENTS: [(u32, &str); 3] = [(33, "coder"), (34, "reviewer"), (33, "researcher")];
const PEOPLE: [u32; 4] = [0, 33, 34, 8];

/// An instance of an agent starts this often at the most, milliseconds.
const RUN: u64 = 2 * 3_600_000;

/// The instance of an agent that works: its part of the day, its session and its task.
struct Run {
    part: u64,
    session: String,
    task: u64,
}

/// Records an event.
fn happen(trail: &Trail, time: SystemTime, event: &TrailEvent<'_>) -> io::Result<()> {
    let details = event.details();
    let name = event.name();
    let record = EventRecord {
        time,
        event: name,
        details: &details,
    };
    trail
        .append([TrailRecord::Event(record)])
        .map(|_| ())
        .map_err(io::Error::other)
}

/// The status of a task, as an instance of an agent changes it.
fn task<'a>(run: &'a Run, from: &'a str, to: &'a str, reason: Option<&'a str>) -> TrailEvent<'a> {
    TrailEvent::Task {
        id: run.task,
        to,
        claim: 1,
        from: Some(from),
        share: None,
        by: None,
        session: Some(&run.session),
        reason,
    }
}

/// What an attacker would have people read.
fn hostile(dice: &mut Dice) -> String {
    let number = dice.roll(60);
    match dice.roll(12) {
        0 => format!("</script><script>document.title='owned{number}'</script>"),
        1 => format!("<img src=x onerror=\"document.title='owned'\">{number}"),
        2 => format!("\u{2028}\u{2029}\u{85}{number}"),
        3 => format!("\u{202e}gnp.exe\u{2066}{number}\u{2069}"),
        4 => format!("a\0b\u{7f}\u{1b}[2J{number}"),
        5 => "x".repeat(10_000) + &number.to_string(),
        6 => format!("\",\"kind\":\"event\"}}]}}\\\\{number}"),
        7 => format!("<!--<script>{number}]]>&lt;&#x3c;"),
        8 => format!("{{{{7*7}}}}${{7*7}}`{number}"),
        9 => format!("javascript:document.title='owned{number}'"),
        10 => format!("__proto__{}", ["", "constructor"][number as usize % 2]),
        _ => format!("مرحبا עברית 你好 e\u{301}\u{301}\u{301} {number}"),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (state_dir, calls, evil) = match &arguments[..] {
        [_, dir, calls] => (PathBuf::from(dir), calls.parse::<u64>()?, false),
        [_, dir, calls, word] if word == "hostile" => (PathBuf::from(dir), calls.parse()?, true),
        _ => return Err("usage: recorded-day STATE_DIR CALLS [hostile]".into()),
    };
    std::fs::create_dir_all(&state_dir)?;
    let trail = Trail::open(TrailOptions {
        state_dir: state_dir.clone(),
        sync: false,
        witness: Arc::new(Log(state_dir.join("heads.log"))),
        notify: |_, _| (),
        limits: SegmentLimits::default(),
    })?;
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)?
        .as_millis() as u64;
    let mut dice = Dice(12);
    let mut runs: [Option<Run>; 3] = Default::default();
    let mut tasks = 0;
    for call in 0..calls {
        // More in working hours, and something that loops for a while.
        let part = call * 1000 / calls.max(1);
        let of_day = match part {
            0..60 => part * 140,
            60..500 => 8400 + (part - 60) * 50,
            500..640 => 30_400 + (part - 500) * 12,
            640..960 => 32_080 + (part - 640) * 130,
            _ => 73_680 + (part - 960) * 300,
        };
        let at = now - DAY + of_day * 1000 + dice.roll(40_000);
        let time =
            |later: u64| SystemTime::UNIX_EPOCH + Duration::from_millis((at + later).min(now));
        let loops = (500..640).contains(&part) && dice.roll(4) > 0;
        let (server, tools) = SERVERS[if loops {
            2
        } else {
            [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 4, 5][dice.roll(12) as usize]
        }];
        let (tool, asked, answered, took) = tools[dice.roll(tools.len() as u64) as usize];
        let kind =
            (loops || dice.roll(10) > 3).then(|| if loops { 0 } else { dice.roll(3) as usize });
        let agent = kind.map(|kind| AGENTS[kind]);
        let uid = agent.map_or_else(|| PEOPLE[dice.roll(4) as usize], |(uid, _)| uid);
        let evil_text = [(); 4].map(|()| {
            if evil {
                hostile(&mut dice)
            } else {
                String::new()
            }
        });
        let [server, tool, who, why] = if evil {
            evil_text.each_ref().map(String::as_str)
        } else {
            [server, tool, agent.map_or("", |(_, agent)| agent), ""]
        };
        if let Some(kind) = kind
            && runs[kind]
                .as_ref()
                .is_none_or(|run| run.part != of_day * 1000 / RUN)
        {
            if let Some(run) = runs[kind].take() {
                let (to, state) = [("done", "done"), ("done", "done"), ("failed", "error")]
                    [dice.roll(3) as usize];
                let reason =
                    (to == "failed").then_some(if evil { who } else { "the tests do not pass" });
                happen(&trail, time(0), &task(&run, "started", to, reason))?;
                let ended = TrailEvent::AgentEnded {
                    agent: who,
                    session: &run.session,
                    person: uid,
                    state,
                    reason: "",
                    exit: "exit status 0",
                    events: None,
                    sha256: None,
                    calls: None,
                    tokens_in: None,
                    tokens_out: None,
                };
                happen(&trail, time(0), &ended)?;
            }
            tasks += 1;
            let run = Run {
                part: of_day * 1000 / RUN,
                session: format!("{:016x}", (call + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                task: tasks,
            };
            let created = TrailEvent::Task {
                id: run.task,
                to: "queued",
                claim: 0,
                from: None,
                share: None,
                by: Some(uid),
                session: None,
                reason: None,
            };
            happen(&trail, time(0), &created)?;
            let started = TrailEvent::AgentStarted {
                agent: who,
                session: &run.session,
                person: uid,
                by: Detail::Text("daemon"),
                task: Some(run.task),
                jail: Some("colibri-agent"),
            };
            happen(&trail, time(0), &started)?;
            happen(&trail, time(1), &task(&run, "queued", "claimed", None))?;
            happen(&trail, time(900), &task(&run, "claimed", "started", None))?;
            runs[kind] = Some(run);
        }
        let run = kind.and_then(|kind| runs[kind].as_ref());
        if let Some(run) = run.filter(|_| dice.roll(3) == 0) {
            let asks = TrailEvent::ModelRequest {
                agent: who,
                session: &run.session,
                person: uid,
                n: call,
                api: if evil { who } else { "anthropic" },
                method: "POST",
                path: "/v1/messages",
                model: Some("made-up-1"),
                sha256: "",
                length: 40_000,
                reserved: 0,
            };
            happen(&trail, time(0), &asks)?;
            let answers = TrailEvent::ModelAnswer {
                agent: who,
                session: &run.session,
                person: uid,
                n: call,
                status: if dice.roll(60) == 0 { 529 } else { 200 },
                length: 3000,
                tokens_in: 9000 + dice.roll(2000),
                tokens_out: 100 + dice.roll(900),
                tokens_cached: 4000,
                tokens_cache_write: 0,
                count: "reported",
            };
            happen(&trail, time(1500 + dice.roll(9000)), &answers)?;
        }
        let through = run.map(|run| Through {
            agent: who,
            session: &run.session,
            for_uid: uid,
        });
        let task = run.map(|run| run.task);
        let mut length = |about: u64| ContentDigest {
            algorithm: DigestAlgorithm::Sha256,
            digest: [7; 32],
            length: about / 2 + dice.roll(about.max(1)),
        };
        let (args, output) = (length(asked), length(answered));
        let enter = Enter {
            time: time(0),
            uid,
            gid: uid,
            pid: Some(4242),
            connection: call % 40,
            continues: None,
            client: None,
            method: "tools/call",
            server: (server != "colibri").then_some(server),
            tool: Some(tool),
            name: Some(tool),
            era: "modern",
            version: "2026-07-28",
            args,
            args_full: None,
            traceparent: None,
            tracestate: None,
            validated: colibri_trail::Validation::Exact,
            through,
            task,
            within: None,
            caller: None,
        };
        let number = trail.append([TrailRecord::Enter(enter)])?.first;
        let mut late = took / 2 + dice.roll(took.max(1));
        let attempt = |late: u64, attempt_number: u32, error_code| Attempt {
            time: time(late),
            enter: number,
            integration_id: server,
            operation: tool,
            attempt_number,
            error_code,
            error_class: error_code.map(|_| "transient"),
            latency: Duration::from_millis(late) + Duration::from_micros(180),
        };
        let mut attempts = 1;
        if dice.roll(400) == 0 {
            trail.append([TrailRecord::Retry(attempt(
                late,
                1,
                Some("INTEGRATION_UNAVAILABLE"),
            ))])?;
            (late, attempts) = (late + 1000 + dice.roll(20_000), 2);
        }
        if dice.roll(300) == 0 {
            let details = [
                ("server", Detail::Text(server)),
                (
                    "method",
                    Detail::Text(if evil { why } else { "elicitation/create" }),
                ),
                ("uid", Detail::Number(uid.into())),
                ("connection", Detail::Number(call % 40)),
                ("request", Detail::Number(call)),
                ("call", Detail::Number(number)),
            ];
            let event = |later, event, details| {
                TrailRecord::Event(EventRecord {
                    time: time(later),
                    event,
                    details,
                })
            };
            trail.append([event(late, "asked", &details)])?;
            late += 4000 + dice.roll(300_000);
            let outcome =
                Detail::Text(["accept", "accept", "decline", "cancel"][dice.roll(4) as usize]);
            let answered = [&details[3..5], &[("outcome", outcome)]].concat();
            trail.append([event(late, "answered", &answered)])?;
        }
        let code = match dice.roll(if loops { 25 } else { 90 }) {
            _ if evil && dice.roll(3) == 0 => Some(why),
            0 => Some(REFUSALS[dice.roll(6) as usize]),
            1 => Some(FAILURES[dice.roll(4) as usize]),
            _ => None,
        };
        if code == Some("APPROVAL_DENIED") {
            late += 60_000 + dice.roll(240_000);
        }
        trail.append([TrailRecord::Exit(ExitRecord {
            attempt: attempt(late, attempts, code),
            success: code.is_none(),
            output: Some(output),
            output_full: None,
            remote: None,
        })])?;
    }
    trail.close()?;
    Ok(())
}
