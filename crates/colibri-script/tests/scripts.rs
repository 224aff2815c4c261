//! Scripts in the program itself: what it answers, and that no script makes it do anything else.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use colibri_api::script::{ScriptFailure, ScriptLimit, ScriptLimits, ScriptMessage, ScriptOrder};

const QUICK: ScriptLimits = ScriptLimits {
    memory: 8 << 20,
    time_ms: 20_000,
    cpu_ms: 1000,
    ..ScriptLimits::DEFAULT
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_colibri-script");

fn run(script: &str, limits: ScriptLimits) -> (ExitStatus, Vec<ScriptMessage>) {
    run_by(&mut Command::new(PROGRAM), script, limits)
}

/// Runs a script by this command, whose calls are all answered with their arguments. Returns its
/// messages.
fn run_by(
    command: &mut Command,
    script: &str,
    limits: ScriptLimits,
) -> (ExitStatus, Vec<ScriptMessage>) {
    let (mut process, mut input) = start(command, script, limits);
    let mut messages = Vec::new();
    for line in BufReader::new(process.stdout.take().unwrap()).lines() {
        let message: ScriptMessage = serde_json::from_str(&line.unwrap()).unwrap();
        if let ScriptMessage::Call(call) = &message {
            let (id, text) = (call.id, serde_json::Value::from(call.arguments.get()));
            // A script that does not wait for its calls may have ended.
            let _ = writeln!(
                input,
                r#"{{"id":{id},"result":{{"content":[{{"type":"text","text":{text}}}]}}}}"#
            );
        }
        messages.push(message);
    }
    drop(input);
    (process.wait().unwrap(), messages)
}

/// Starts a process that has its order.
fn start(command: &mut Command, script: &str, limits: ScriptLimits) -> (Child, ChildStdin) {
    let mut process = command
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = process.stdin.take().unwrap();
    let order = ScriptOrder {
        script: script.to_owned(),
        tools: BTreeMap::from([("fs".to_owned(), vec!["read".to_owned()])]),
        limits,
    };
    writeln!(input, "{}", serde_json::to_string(&order).unwrap()).unwrap();
    (process, input)
}

/// How a script failed.
fn failure(script: &str, limits: ScriptLimits) -> ScriptFailure {
    let (status, mut messages) = run(script, limits);
    match messages.pop() {
        Some(ScriptMessage::Failed(failure)) if status.success() => failure,
        other => panic!("{script}: {status}: {other:?}"),
    }
}

fn returned(script: &str) -> String {
    match run(script, ScriptLimits::DEFAULT).1.pop() {
        Some(ScriptMessage::Done(done)) => done.value.get().to_owned(),
        other => panic!("{script}: {other:?}"),
    }
}

#[test]
fn the_language_is_there_without_its_clocks() {
    for (script, value) in [
        (
            "return [1, 2n > 1n, [3, 1].toSorted(), Object.groupBy([1, 2], (n) => n % 2)]",
            r#"[1,true,[1,3],{"0":[2],"1":[1]}]"#,
        ),
        (
            "export default await Promise.all([1, Promise.resolve(2)])",
            "[1,2]",
        ),
        (
            "const x = await tools.fs.read({ a: 1 });\nexport { x as default };",
            r#""{\"a\":1}""#,
        ),
        (
            "return [typeof Date, typeof performance, typeof setTimeout, typeof require, typeof process, typeof std]",
            r#"["undefined","undefined","undefined","undefined","undefined","undefined"]"#,
        ),
        (
            "return ['fs' in tools, Object.keys(tools.fs), typeof tools.fs.other, typeof tools.then, typeof tools.fs.then]",
            r#"[true,["read"],"function","undefined","undefined"]"#,
        ),
        (
            "return (await (async () => tools.fs)()).read === undefined",
            "false",
        ),
        ("return { a: undefined, b: () => 1 }", "{}"),
        ("", "null"),
    ] {
        assert_eq!(returned(script), value, "{script}");
    }
}

#[test]
fn each_limit_has_its_name() {
    for (script, limit) in [
        ("for (;;);", ScriptLimit::Cpu),
        ("/(x+x+)+y/.test('x'.repeat(40))", ScriptLimit::Cpu),
        (
            "(async () => { for (;;) await 0 })(); await new Promise(() => {})",
            ScriptLimit::Cpu,
        ),
        ("for (;;) { try { for (;;); } catch {} }", ScriptLimit::Cpu),
        (
            "const a = []; for (;;) a.push('x'.repeat(99999) + a.length)",
            ScriptLimit::Memory,
        ),
        ("new Uint8Array(1e9)", ScriptLimit::Memory),
        ("(function f() { f(); })()", ScriptLimit::Depth),
        ("JSON.parse('['.repeat(1e6))", ScriptLimit::Depth),
        ("new RegExp('(?:'.repeat(30000))", ScriptLimit::Depth),
        // Far less than the address space.
        (
            "return new Uint8Array(32 << 20).length",
            ScriptLimit::Memory,
        ),
        (
            "let a = 1; for (let i = 0; i < 101; i++) a = [a]; return a",
            ScriptLimit::Depth,
        ),
        (
            "let a = 1; for (let i = 0; i < 101; i++) a = [a]; await tools.fs.read({ a })",
            ScriptLimit::Depth,
        ),
        ("return 'x'.repeat(4194303)", ScriptLimit::Output),
        (
            "await tools.fs.read({ a: 'x'.repeat(4194303) })",
            ScriptLimit::Output,
        ),
        (
            "for (let i = 0; i < 99; i++) tools.fs.read({ a: 'x'.repeat(1e6) })",
            ScriptLimit::Memory,
        ),
        (
            "for (let i = 0; i < 1001; i++) await tools.fs.read()",
            ScriptLimit::Calls,
        ),
    ] {
        let limits = match limit {
            ScriptLimit::Cpu | ScriptLimit::Memory => QUICK,
            _ => ScriptLimits::DEFAULT,
        };
        let failure = failure(script, limits);
        assert_eq!(failure.limit, Some(limit), "{script}: {failure:?}");
        assert!(failure.message.contains("limit"), "{failure:?}");
    }
    let limits = ScriptLimits {
        time_ms: 50,
        ..ScriptLimits::DEFAULT
    };
    assert_eq!(failure("for (;;);", limits).limit, Some(ScriptLimit::Time));
}

#[test]
fn printing_is_cut_and_says_so() {
    let (_, messages) = run(
        "for (let i = 0; i < 100; i++) console.log('x'.repeat(1000))",
        ScriptLimits::DEFAULT,
    );
    let printed: Vec<_> = messages
        .iter()
        .filter_map(|message| match message {
            ScriptMessage::Log(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert!(printed.iter().map(|text| text.len()).sum::<usize>() <= 64 << 10);
    assert_eq!(printed.last(), Some(&"[more than 64 KiB are not printed]"));
}

#[test]
fn no_more_calls_are_in_flight_than_may_be() {
    let script = "return (await Promise.all(Array.from({ length: 50 }, (_, i) => tools.fs.read({ i })))).length";
    let limits = ScriptLimits {
        parallel: 3,
        ..ScriptLimits::DEFAULT
    };
    let (_, messages) = run(script, limits);
    assert_eq!(messages.len(), 51);
    // None is answered: it ends with its input, and no others were sent.
    let (process, input) = start(&mut Command::new(PROGRAM), script, limits);
    drop(input);
    let output = process.wait_with_output().unwrap().stdout;
    assert_eq!(
        output
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .count(),
        3
    );
}

#[test]
fn arguments_that_are_no_object_are_the_scripts_own_mistake() {
    let script = "Object.prototype.toJSON = () => 1; await tools.fs.read({})";
    let failure = failure(script, ScriptLimits::DEFAULT);
    assert_eq!(
        failure.message,
        "TypeError: the arguments are not written as a JSON object"
    );
}

/// As an ordinary user it could not take the place in line that it gives up for others.
#[test]
fn a_daemon_that_lets_others_go_first_runs_scripts_too() {
    let (status, messages) = run_by(
        Command::new("nice").args(["-n", "19", PROGRAM]),
        "return 5",
        ScriptLimits::DEFAULT,
    );
    assert!(
        matches!(&messages[..], [ScriptMessage::Done(done)] if done.value.get() == "5"),
        "{status}: {messages:?}"
    );
}

/// The filter of system calls hides from attempts that another step was left out: the steps are
/// looked at themselves.
#[test]
#[cfg(target_os = "linux")]
fn every_right_is_given_up_before_the_script_is_read() {
    let mut traced = Command::new("strace")
        .arg(PROGRAM)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace(1) can be started");
    // Without an order it reads and ends.
    drop(traced.stdin.take());
    let trace = traced.wait_with_output().unwrap().stderr;
    let trace = String::from_utf8_lossy(&trace);
    let (before, _) = trace
        .split_once("\nread(0,")
        .unwrap_or_else(|| panic!("it reads nothing: {trace}"));
    let mut steps = vec![
        "RLIMIT_AS, {rlim_cur=589824*1024, rlim_max=589824*1024}",
        "RLIMIT_CORE, {rlim_cur=0, rlim_max=0}",
        "RLIMIT_CPU, {rlim_cur=11, rlim_max=11}",
        "RLIMIT_FSIZE, {rlim_cur=0, rlim_max=0}",
        "RLIMIT_MEMLOCK, {rlim_cur=0, rlim_max=0}",
        "RLIMIT_NOFILE, {rlim_cur=3, rlim_max=3}",
        "RLIMIT_NPROC, {rlim_cur=0, rlim_max=0}",
        "close_range(2, ",
        "prctl(PR_SET_DUMPABLE, SUID_DUMP_DISABLE",
        "prctl(PR_SET_NO_NEW_PRIVS, 1",
        "seccomp(SECCOMP_SET_MODE_FILTER",
    ];
    let place = before.split_once("setpriority(PRIO_PROCESS, 0, ");
    let place = place.and_then(|(_, rest)| rest.split_once(')')?.0.parse::<i32>().ok());
    assert!(place >= Some(10), "{before}");
    // Where the kernel has it, it has a version.
    if !before.contains("LANDLOCK_CREATE_RULESET_VERSION) = -1") {
        steps.push("landlock_restrict_self(");
    }
    for step in steps {
        let done = before
            .lines()
            .any(|line| line.contains(step) && line.ends_with("= 0"));
        assert!(done, "{step}: {before}");
    }
}
