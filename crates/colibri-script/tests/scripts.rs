//! Scripts in the program itself: what it answers, and that no script makes it do anything else.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitStatus, Stdio};

use colibri_api::script::{ScriptFailure, ScriptLimit, ScriptLimits, ScriptMessage, ScriptOrder};

const QUICK: ScriptLimits = ScriptLimits {
    memory: 8 << 20,
    time_ms: 20_000,
    cpu_ms: 1000,
    ..ScriptLimits::DEFAULT
};

/// Runs a script in a process, whose calls are all answered with their arguments. Returns its messages.
fn run(script: &str, limits: ScriptLimits) -> (ExitStatus, Vec<ScriptMessage>) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_colibri-script"))
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
        ("export default await Promise.all([1, Promise.resolve(2)])", "[1,2]"),
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
        ("return (await (async () => tools.fs)()).read === undefined", "false"),
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
    let (_, messages) = run(
        "const all = []; for (let i = 0; i < 50; i++) all.push(tools.fs.read({ i })); return (await Promise.all(all)).length",
        ScriptLimits {
            parallel: 3,
            ..ScriptLimits::DEFAULT
        },
    );
    assert_eq!(messages.len(), 51);
}

/// Numbers that repeat with their seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A script that means harm: it fills memory, loops, recurses, waits for ever, tears at the globals.
fn hostile(random: &mut Random) -> String {
    const ACTS: [&str; 32] = [
        "for (;;);",
        "while (true) { try { throw 1 } catch {} finally { continue } }",
        "const a = []; for (;;) a.push(new Array(9999).fill(a.length))",
        "let s = 'x'; for (;;) s += s",
        "const m = new Map(); for (let i = 0;; i++) m.set({ i }, 'x'.repeat(i))",
        "(function f(n) { return f(n + 1) + f(n + 2) })(0)",
        "const f = () => { try { f() } catch { f() } }; f()",
        "JSON.parse('['.repeat(99999))",
        "JSON.stringify((() => { let a = {}; for (let i = 0; i < 9999; i++) a = { a }; return a })())",
        "/(a+)+$/.test('a'.repeat(35) + 'b')",
        "/(.*)*x/s.exec('y'.repeat(99999))",
        "new RegExp('('.repeat(9999) + ')'.repeat(9999))",
        "await new Promise(() => {})",
        "await { then() {} }",
        "(async function g() { await 0; g(); g() })(); await new Promise(() => {})",
        "Promise.prototype.then = () => { for (;;); }; await tools.fs.read()",
        "JSON.stringify = () => '{}]'; return await tools.fs.read({})",
        "JSON.parse = JSON.stringify = Map = Promise = undefined; await tools.fs.read({})",
        "Object.prototype.toJSON = function () { return this }; return {}",
        "Object.defineProperty(Object.prototype, 'content', { get() { throw 1 } }); await tools.fs.read()",
        "Array.prototype.filter = undefined; await tools.fs.read()",
        "globalThis.Promise = class { constructor(f) { f(f, f) } }; await tools.fs.read()",
        "for (;;) tools.fs.read({ a: 'x'.repeat(9999) })",
        "await Promise.all(Array.from({ length: 9999 }, () => tools.fs.read()))",
        "for (;;) console.log('x'.repeat(9999))",
        "return new Proxy({}, { ownKeys() { for (;;); } })",
        "return { toJSON() { return { toJSON() { return this } } } }",
        "throw new Proxy(new Error('x'), { get() { for (;;); } })",
        "throw { get message() { throw 1 }, get stack() { return 5 } }",
        "const e = new Error(); e.stack = 'x'.repeat(1e6); e.name = '\\ud800'; throw e",
        "new Function('for (;;);')()",
        "return '\\ud800' + String.fromCharCode(0).repeat(99)",
    ];
    const AROUND: [(&str, &str); 6] = [
        ("", ""),
        ("try { ", " } catch {} for (;;);"),
        ("(async () => { ", " })(); await tools.fs.read();"),
        ("await (async () => { ", " })();"),
        ("eval(`(async () => { ${String.raw`", "`} })()`);"),
        ("for (let i = 0; i < 9; i++) { ", " }"),
    ];
    let (before, after) = AROUND[random.below(AROUND.len() as u64) as usize];
    let second = if random.below(2) == 0 { random.one_of(&ACTS) } else { "" };
    format!("{before}{}{after}\n{second}", random.one_of(&ACTS))
}

/// Ten thousand in the long form (`COLIBRI_LONG=1`, .ci/long), two hundred else.
#[test]
fn hostile_scripts_end_and_say_why() {
    let count = if std::env::var_os("COLIBRI_LONG").is_some() {
        10_000
    } else {
        300
    };
    let mut random = Random(0x5eed);
    let mut ends = BTreeMap::<String, u32>::new();
    for _ in 0..count {
        let script = hostile(&mut random);
        let (status, messages) = run(
            &script,
            ScriptLimits {
                calls: 40,
                cpu_ms: 100,
                ..QUICK
            },
        );
        let end = match messages.last() {
            Some(ScriptMessage::Done(_)) => "done".to_owned(),
            Some(ScriptMessage::Failed(failure)) => match failure.limit {
                Some(limit) => format!("{limit:?}"),
                None => "failed".to_owned(),
            },
            other => panic!("{status}: {other:?}: {script}"),
        };
        assert!(status.success(), "{status}: {script}");
        *ends.entry(end).or_default() += 1;
    }
    println!("{ends:?}");
    assert!(ends.len() >= 4, "{ends:?}");
}
