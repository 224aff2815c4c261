//! Batches against a model that says what a test wants, on a clock of the test's own.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::maker::{
    BatchEnd, CallFuture, InternalCalls, MAX_CALLS, MAX_CALLS_OF_SERVER, SummaryMaker,
};
use super::summary_table::{SummaryKey, SummaryTable};
use super::tools::{SummarisableTool, ToolSource};
use colibri_store::Database;

/// The tools of a test: what is sent, by server, name and pin.
#[derive(Default)]
struct Fake {
    tools: Mutex<BTreeMap<(String, String, String), String>>,
    absent: bool,
}

impl Fake {
    fn of(tools: &[(&str, &str)]) -> Fake {
        let fake = Fake::default();
        tools
            .iter()
            .for_each(|(server, own)| fake.add(server, own, "pin"));
        fake
    }

    fn add(&self, server: &str, own: &str, pin: &str) {
        let at = (server.to_owned(), own.to_owned(), pin.to_owned());
        self.tools
            .lock()
            .unwrap()
            .insert(at, format!("about {server} {own} {pin}"));
    }
}

fn tool(server: &str, own: &str, pin: &str) -> SummarisableTool {
    SummarisableTool {
        server: server.into(),
        own: own.to_owned(),
        key: SummaryKey {
            name: format!("{server}:{own}:00"),
            pin: pin.to_owned(),
        },
    }
}

impl ToolSource for Fake {
    fn adapter(&self) -> Option<String> {
        (!self.absent).then(|| "model-api__complete".to_owned())
    }

    fn approved(&self) -> Vec<SummarisableTool> {
        let tools = self.tools.lock().unwrap();
        tools
            .keys()
            .map(|(server, own, pin)| tool(server, own, pin))
            .collect()
    }

    fn context(&self, tool: &SummarisableTool) -> Option<String> {
        let at = (
            tool.server.to_string(),
            tool.own.clone(),
            tool.key.pin.clone(),
        );
        self.tools.lock().unwrap().get(&at).cloned()
    }
}

/// The model's answers to calls, in their order; the last of them from then on.
struct Model {
    says: Mutex<VecDeque<Result<Value, String>>>,
    /// The questions to it, with their times.
    asked: Mutex<Vec<(Instant, Value)>>,
}

impl InternalCalls for Model {
    fn call(&self, tool: &str, arguments: &str) -> CallFuture<'_> {
        assert_eq!(tool, "model-api__complete");
        let arguments = serde_json::from_str(arguments).unwrap();
        self.asked.lock().unwrap().push((Instant::now(), arguments));
        let mut says = self.says.lock().unwrap();
        let said = match says.len() {
            1 => says[0].clone(),
            _ => says.pop_front().unwrap(),
        };
        Box::pin(async move { said })
    }
}

fn said(completion: &str) -> Result<Value, String> {
    Ok(
        json!({ "id": 1, "result": { "content": [], "structuredContent": { "completion": completion } } }),
    )
}

fn failed(error: Value) -> Result<Value, String> {
    Ok(
        json!({ "id": 1, "result": { "isError": true, "structuredContent": { "ok": false, "error": error } } }),
    )
}

fn busy() -> Result<Value, String> {
    failed(json!({ "code": "MODEL_FAILED", "message": "503", "transient": true }))
}

/// The time, which stands still.
fn clock() -> u64 {
    1 << 40
}

struct Bench {
    _state: tempfile::TempDir,
    tools: Arc<Fake>,
    model: Arc<Model>,
    store: Arc<Database>,
    summaries: Arc<SummaryTable>,
}

impl Bench {
    fn new(tools: Fake, says: impl IntoIterator<Item = Result<Value, String>>) -> Bench {
        let state = tempfile::tempdir().unwrap();
        let store = Arc::new(Database::open(state.path()).unwrap());
        Bench {
            tools: Arc::new(tools),
            model: Arc::new(Model {
                says: Mutex::new(says.into_iter().collect()),
                asked: Mutex::default(),
            }),
            summaries: SummaryTable::recall(&store),
            store,
            _state: state,
        }
    }

    fn maker(&self) -> SummaryMaker {
        SummaryMaker {
            summaries: self.summaries.clone(),
            store: self.store.clone(),
            tools: self.tools.clone(),
            calls: self.model.clone(),
            model: "m".to_owned(),
            clock,
            failures: 0,
            refused: HashMap::new(),
        }
    }

    /// The tools that were asked about.
    fn asked(&self) -> Vec<String> {
        let asked = self.model.asked.lock().unwrap();
        let context =
            |(_, arguments): &(_, Value)| arguments["context"].as_str().unwrap().to_owned();
        asked.iter().map(context).collect()
    }

    /// The seconds between calls.
    fn waits(&self) -> Vec<u64> {
        let asked = self.model.asked.lock().unwrap();
        asked
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0).as_secs())
            .collect()
    }

    /// The stored summaries, which are the known ones.
    fn kept(&self) -> Vec<(String, String, String)> {
        let summaries = self.store.summaries().unwrap().into_iter();
        let mut kept: Vec<_> = summaries
            .map(|summary| (summary.key, summary.pin, summary.text))
            .collect();
        kept.sort();
        kept
    }
}

#[tokio::test(start_paused = true)]
async fn each_definition_is_asked_about_once_and_another_pin_is_another() {
    let bench = Bench::new(
        Fake::of(&[("a", "x"), ("a", "y"), ("b", "z")]),
        [said("Does it.")],
    );
    let come = bench.summaries.come();
    assert_eq!(bench.maker().batch().await, BatchEnd::Done);
    assert_eq!(
        bench.asked(),
        ["about a x pin", "about b z pin", "about a y pin"],
        "servers take turns"
    );
    assert!(come.has_changed().unwrap());
    let first = bench.model.asked.lock().unwrap()[0].1.clone();
    assert_eq!(
        first,
        json!({ "task_id": "summary:a:x:00", "context": "about a x pin", "max_tokens": 300, "temperature": 0, "model": "m" })
    );
    let kept =
        |name: &str, pin: &str| (format!("{name}:00"), pin.to_owned(), "Does it.".to_owned());
    assert_eq!(
        bench.kept(),
        [kept("a:x", "pin"), kept("a:y", "pin"), kept("b:z", "pin")]
    );
    // Another daemon on the same state has them, and asks about what is another definition alone.
    let after = Bench {
        summaries: SummaryTable::recall(&bench.store),
        ..bench
    };
    after
        .tools
        .tools
        .lock()
        .unwrap()
        .remove(&("a".to_owned(), "x".to_owned(), "pin".to_owned()));
    after.tools.add("a", "x", "pin2");
    assert_eq!(after.maker().batch().await, BatchEnd::Done);
    assert_eq!(after.asked()[3..], ["about a x pin2"]);
}

#[tokio::test(start_paused = true)]
async fn three_attempts_twice_as_far_apart_each_time_and_the_next_tool_waits_too() {
    let says = [
        busy(),
        Err("no answer".to_owned()),
        busy(),
        busy(),
        busy(),
        said("At last."),
    ];
    let bench = Bench::new(Fake::of(&[("a", "x"), ("b", "y")]), says);
    assert_eq!(bench.maker().batch().await, BatchEnd::Done);
    assert_eq!(
        bench.asked(),
        [["about a x pin"; 3], ["about b y pin"; 3]].concat()
    );
    assert_eq!(bench.waits(), [5, 10, 20, 40, 60]);
    assert_eq!(bench.kept().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_given_the_time_that_it_asks_for_up_to_an_hour() {
    let after = |seconds: u64| {
        failed(
            json!({ "code": "MODEL_BUSY", "message": "429", "transient": true, "retry_after_s": seconds }),
        )
    };
    let bench = Bench::new(
        Fake::of(&[("a", "x")]),
        [after(77), after(u64::MAX), said("Does it.")],
    );
    assert_eq!(bench.maker().batch().await, BatchEnd::Done);
    assert_eq!(bench.waits(), [77, 3600]);
}

#[tokio::test(start_paused = true)]
async fn what_stays_ends_the_batch_until_something_is_changed_by_hand() {
    let says = [
        failed(json!({ "code": "MODEL_REFUSED", "message": "no such model" })),
        said("Does it."),
    ];
    let bench = Bench::new(Fake::of(&[("a", "x"), ("a", "y")]), says);
    let (changes, changed) = watch::channel(());
    let work = tokio::spawn(bench.maker().work(changed));
    for _ in 0..20 {
        changes.send_replace(());
        sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(
        bench.asked().len(),
        1,
        "tools that change are no reason to ask again"
    );
    bench.summaries.try_again();
    sleep(Duration::from_secs(60)).await;
    assert_eq!((bench.asked().len(), bench.kept().len()), (3, 2));
    bench.tools.add("a", "z", "pin");
    changes.send_replace(());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.kept().len(), 3, "a tool that came later");
    work.abort();
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_the_provider_refuses_to_read_keeps_no_other_servers_waiting() {
    let refused = || failed(json!({ "code": "MODEL_REFUSED", "message": "400" }));
    let says = [refused(), said("Does it."), said("Does it."), refused()];
    let bench = Bench::new(Fake::of(&[("a", "poison"), ("b", "x"), ("b", "y")]), says);
    let mut maker = bench.maker();
    assert_eq!(maker.batch().await, BatchEnd::Refused);
    assert_eq!(maker.batch().await, BatchEnd::Refused);
    assert_eq!(
        bench.asked(),
        [
            "about a poison pin",
            "about b x pin",
            "about b y pin",
            "about a poison pin"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_hour_later_it_is_tried_again() {
    let says = [
        failed(json!({ "code": "MODEL_REFUSED", "message": "no such model" })),
        said("Does it."),
    ];
    let bench = Bench::new(Fake::of(&[("a", "x")]), says);
    let (_changes, changed) = watch::channel(());
    let work = tokio::spawn(bench.maker().work(changed));
    sleep(Duration::from_secs(3590)).await;
    assert_eq!(bench.asked().len(), 1);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(bench.kept().len(), 1);
    work.abort();
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_sentence_is_none_and_is_not_asked_for_again_and_again() {
    let bench = Bench::new(Fake::of(&[("a", "x")]), [said(" \n\u{202e}")]);
    assert_eq!(bench.maker().batch().await, BatchEnd::Done);
    assert_eq!(bench.maker().batch().await, BatchEnd::Done);
    let again = Bench {
        summaries: SummaryTable::recall(&bench.store),
        ..bench
    };
    assert_eq!(again.maker().batch().await, BatchEnd::Done);
    assert_eq!((again.asked().len(), again.kept()[0].2.as_str()), (1, ""));
    let key = tool("a", "x", "pin").key;
    assert!(!again.summaries.is_due(&key, clock() + 23 * 3600 * 1000));
    assert!(again.summaries.is_due(&key, clock() + 24 * 3600 * 1000));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_changes_its_tools_all_the_time_costs_no_more_than_its_calls_of_an_hour() {
    let bench = Bench::new(Fake::of(&[("quiet", "t")]), [said("Does it.")]);
    for n in 0..10 * MAX_CALLS_OF_SERVER {
        bench.tools.add("hostile", &format!("t{n}"), "pin");
    }
    assert_eq!(bench.maker().batch().await, BatchEnd::Limit);
    assert_eq!(bench.asked().len(), MAX_CALLS_OF_SERVER + 1);
    // A restart gives nothing back, and one more server is served all the same.
    bench.tools.add("other", "t", "pin");
    let again = Bench {
        summaries: SummaryTable::recall(&bench.store),
        ..bench
    };
    assert_eq!(again.maker().batch().await, BatchEnd::Limit);
    assert_eq!(again.asked().last().unwrap(), "about other t pin");
    assert_eq!(again.asked().len(), MAX_CALLS_OF_SERVER + 2);
    for server in 0..10 {
        for n in 0..MAX_CALLS_OF_SERVER {
            again
                .tools
                .add(&format!("hostile{server}"), &format!("t{n}"), "pin");
        }
    }
    assert_eq!(again.maker().batch().await, BatchEnd::Limit);
    assert_eq!(again.asked().len(), MAX_CALLS, "all together");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_approved_is_not_sent_again() {
    let bench = Bench::new(Fake::of(&[("a", "x")]), [busy()]);
    let mut maker = bench.maker();
    let batch = async {
        sleep(Duration::from_secs(2)).await;
        bench.tools.tools.lock().unwrap().clear();
    };
    let (over, ()) = tokio::join!(maker.batch(), batch);
    assert_eq!((over, bench.asked().len()), (BatchEnd::Done, 1));
}

#[tokio::test(start_paused = true)]
async fn without_an_adapter_nothing_is_asked() {
    let absent = Fake {
        absent: true,
        ..Fake::of(&[("a", "x")])
    };
    let bench = Bench::new(absent, [said("Does it.")]);
    assert_eq!(bench.maker().batch().await, BatchEnd::Refused);
    assert!(bench.asked().is_empty());
}
