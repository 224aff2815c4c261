//! Scripts that mean harm, made from a seed, and what becomes of them in a daemon.

mod families;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::thread;

use serde_json::{Value, json};

use crate::{Client, Place, code_of, copy_program, processes_with, program, text_of, wait_for};

/// The scripts of one user that a daemon runs at the same time.
const AT_ONCE: usize = 4;
/// The limits as failures name them.
const LIMITS: [&str; 6] = ["memory", "time", "cpu", "calls", "output", "depth"];

/// One script, and the ends that it may have.
pub struct HostileScript {
    /// The name of its family.
    pub family: &'static str,
    /// Its text.
    pub text: String,
    /// The `timeout_s` to run it with.
    pub timeout_s: u32,
    /// `done`, `failed`, or the names of limits.
    ends: Vec<&'static str>,
}

impl HostileScript {
    /// So many scripts, the same ones for the same seed (not 0).
    pub fn many(seed: u64, count: usize) -> Vec<HostileScript> {
        let mut random = Random(seed);
        (0..count)
            .map(|_| HostileScript::draw(&mut random))
            .collect()
    }

    fn draw(random: &mut Random) -> HostileScript {
        let (family, ends, templates) = *random.one_of(&families::FAMILIES);
        let template: &str = random.one_of::<&str>(templates);
        let mut text = random.fill(template);
        // On a busy machine each may reach the limit of time. A few have more of it, and may reach
        // that of computing.
        let mut ends = [ends, &["time", "cpu"]].concat();
        let timeout_s = if random.below(400) == 0 { 12 } else { 1 };
        // A module's own statements stand at its top, and so does a character that is passed over
        // there alone.
        if !matches!(family, "modules" | "unicode") && random.below(2) == 0 {
            let (before, after, more) = *random.one_of(&families::AROUND);
            text = format!("{before}{text}{after}");
            ends.extend(more);
        }
        HostileScript {
            family,
            text,
            timeout_s,
            ends,
        }
    }

    /// The end that a result tells of.
    ///
    /// # Errors
    /// The script may not end so.
    fn end(&self, answer: &Value) -> Result<&'static str, String> {
        let result = &answer["result"];
        let text = text_of(result);
        let limit = LIMITS
            .iter()
            .find(|name| text.contains(&format!("limit {name} (")));
        // The process, not the script, has failed.
        let broken = [
            "process ended before",
            "wrote what it must not",
            "no process for",
        ];
        let end = match code_of(answer) {
            None if result.is_object() && result["isError"] != true => Some("done"),
            Some("SCRIPT_FAILED") if !broken.iter().any(|words| text.contains(words)) => {
                Some("failed")
            }
            Some("SCRIPT_LIMIT") => limit.copied(),
            _ => None,
        };
        end.filter(|end| self.ends.contains(end)).ok_or_else(|| {
            let shown: String = answer.to_string().chars().take(600).collect();
            format!(
                "{} ({} s), not {:?}: {}\n  {shown}",
                self.family, self.timeout_s, self.ends, self.text
            )
        })
    }
}

/// What became of scripts.
#[derive(Default)]
pub struct HostileEnds {
    /// Families and their scripts' ends, with how many there were.
    pub counts: BTreeMap<(&'static str, &'static str), u32>,
    /// Scripts that ended as they may not, with what was answered.
    pub wrong: Vec<String>,
}

/// A place whose scripts' processes are told from those of others by the directory of their
/// program, and that directory. It has the servers `one` and `two` for scripts, and `calm` for
/// others.
///
/// # Panics
/// If it cannot be made.
pub fn place_for_hostile_scripts() -> (tempfile::TempDir, Place) {
    let directory = tempfile::Builder::new().prefix("colibri-e2e-").tempdir();
    let directory = directory.expect("a temporary directory");
    for name in ["colibri-mcpd", "colibri-script"] {
        copy_program(&program(name), &directory.path().join(name));
    }
    let place = Place::with_daemon(directory.path().join("colibri-mcpd"));
    let server = |name| place.fixture(name, &[], json!({}));
    place.registry(&json!({ "one": server("one"), "two": server("two"), "calm": server("calm") }));
    (directory, place)
}

/// Waits until no process of a script is left whose program is in this directory.
pub fn wait_for_no_script(directory: &tempfile::TempDir) {
    let program = directory
        .path()
        .join("colibri-script")
        .display()
        .to_string();
    wait_for("the end of all scripts", || {
        processes_with(&program).is_empty().then_some(())
    });
}

/// Runs scripts, as many at once as one user may, each on a client that `connect` opens.
pub fn run_hostile_scripts(
    scripts: Vec<HostileScript>,
    connect: impl Fn() -> Client + Sync,
    ends: &mut HostileEnds,
) {
    let queue = Mutex::new(VecDeque::from(scripts));
    let ends = Mutex::new(ends);
    let next = || queue.lock().expect("no panic").pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let mut client = connect();
                while let Some(script) = next() {
                    let answer = run_script(&mut client, &script);
                    let mut ends = ends.lock().expect("no panic");
                    match script.end(&answer) {
                        Ok(end) => *ends.counts.entry((script.family, end)).or_default() += 1,
                        Err(wrong) => ends.wrong.push(wrong),
                    }
                }
            });
        }
    });
}

/// Runs one. The place of the one before is free a moment after its answer, when its process has
/// ended.
fn run_script(client: &mut Client, script: &HostileScript) -> Value {
    let arguments = json!({ "script": script.text, "timeout_s": script.timeout_s });
    wait_for("a place for a script", || {
        let id = client.request_tool("colibri_run_script", arguments.clone());
        let answer = client.answer(id);
        (code_of(&answer) != Some("LIMIT_USER")).then_some(answer)
    })
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

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// A template with its numbers and alternatives drawn.
    fn fill(&mut self, template: &str) -> String {
        let mut filled = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('«') {
            let (choice, after) = after.split_once('»').expect("a choice has an end");
            filled.push_str(before);
            let bounds = choice
                .split_once("..")
                .and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
            match bounds {
                Some((low, high)) => filled.push_str(&self.between(low, high).to_string()),
                None => {
                    let choices: Vec<&str> = choice.split('|').collect();
                    filled.push_str(self.one_of::<&str>(&choices));
                }
            }
            rest = after;
        }
        filled + rest
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}
