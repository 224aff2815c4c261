//! Agents over pipes in memory: what hostile ones write, budgets, orders, and what is kept of them.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use colibri_api::paths::SERVICE;
use colibri_api::{AgentInstance, AgentState, NewTask, TaskStatus};
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex,
};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::{AgentDependencies, AgentOrder, AgentRoster, AgentWork, Doors, ListenGuard, Models};
use crate::board::BoardActor;
use crate::registry::secrets::SecretStore;
use crate::registry::{AgentEntry, LoadedRegistry, RegisteredAgent, parse};
use crate::relay::{AgentSocket, CallRules, Recorder};
use colibri_confine::{
    BoxFuture, LaunchSpec, ServerExit, ServerProcess, SpawnError, SpawnedServer, Spawner,
};
use colibri_policy::{Caller, Clients, Gates};
use colibri_store::Database;

/// Far more than anything takes.
const PATIENCE: Duration = Duration::from_secs(3600 * 24 * 400);

/// The agent's side of an instance.
struct Wires {
    stdin: DuplexStream,
    stdout: DuplexStream,
    exit: oneshot::Sender<ServerExit>,
}

/// The behaviour of a test agent, once it is started.
type Acts = Box<dyn FnOnce(Wires) -> BoxFuture<'static, ()> + Send>;

#[derive(Default)]
struct Scripted {
    next: Mutex<Option<Acts>>,
    asked: Mutex<Vec<LaunchSpec>>,
}

struct Ran(oneshot::Receiver<ServerExit>);

impl ServerProcess for Ran {
    fn pid(&self) -> u32 {
        1
    }

    fn wait(&mut self) -> BoxFuture<'_, ServerExit> {
        Box::pin(async { (&mut self.0).await.unwrap_or(ServerExit::Unknown) })
    }
}

impl Spawner for Scripted {
    fn spawn(&self, spec: LaunchSpec) -> BoxFuture<'_, Result<SpawnedServer, SpawnError>> {
        self.asked.lock().unwrap().push(spec);
        let acts = self.next.lock().unwrap().take();
        Box::pin(async move {
            let acts = acts.ok_or(SpawnError::HelperKilled { signal: 9 })?;
            let ((stdin, far_in), (stdout, far_out)) = (duplex(64), duplex(64 * 1024));
            let (exit, ran) = oneshot::channel();
            tokio::spawn(acts(Wires {
                stdin: far_in,
                stdout: far_out,
                exit,
            }));
            Ok(SpawnedServer {
                stdin: Box::new(stdin),
                stdout: Box::new(stdout),
                stderr: Box::new(&b"words\n"[..]),
                process: Box::new(Ran(ran)),
            })
        })
    }
}

/// Agent sockets that nobody comes through.
struct Closed;

struct Opened;

impl ListenGuard for Opened {}

impl Doors for Closed {
    fn open(
        &self,
        _: Arc<AgentSocket>,
        _: Caller,
    ) -> io::Result<(Box<Path>, Box<dyn ListenGuard>)> {
        Ok((Path::new("/doors/x").into(), Box::new(Opened)))
    }
}

struct World {
    agents: Arc<AgentRoster>,
    spawner: Arc<Scripted>,
    directory: tempfile::TempDir,
}

fn rules() -> Arc<CallRules> {
    Arc::new(CallRules {
        gates: ArcSwap::from_pointee(Gates::new(true, true)),
        clients: ArcSwap::from_pointee(Clients::absent("/none".into())),
    })
}

/// No models.
impl Models for Closed {
    fn open(
        &self,
        _: &Path,
        _: &Arc<AgentEntry>,
        _: Arc<AgentSocket>,
        _: Caller,
    ) -> io::Result<Box<dyn ListenGuard>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn registry(keys: &str) -> LoadedRegistry {
    let text = format!(
        r#"{{"agents":{{"a":{{"command":"/bin/a","events":"codex","users":["7"]{keys}}}}}}}"#
    );
    let entry = |(id, entry)| {
        let entry = Arc::new(entry);
        (
            id,
            RegisteredAgent {
                entry,
                refusal: None,
            },
        )
    };
    LoadedRegistry {
        agents: parse(text.as_bytes(), "r")
            .unwrap()
            .agents
            .into_iter()
            .map(entry)
            .collect(),
        ..LoadedRegistry::default()
    }
}

const ORDER: AgentOrder = AgentOrder {
    person: Caller {
        uid: 7,
        gid: 7,
        pid: None,
    },
    operator: false,
    by: Some(7),
};

impl World {
    fn new(keys: &str) -> World {
        World::within(tempfile::tempdir().unwrap(), keys)
    }

    fn within(directory: tempfile::TempDir, keys: &str) -> World {
        let spawner = Arc::new(Scripted::default());
        let store = Arc::new(Database::open(directory.path()).unwrap());
        let agents = AgentRoster::new(AgentDependencies {
            spawner: spawner.clone(),
            recorder: Arc::new(Recorder::Off),
            rules: rules(),
            results: Arc::default(),
            secrets: Arc::new(SecretStore::beside(Path::new("/none/r.json"))),
            socket: "/none/c.sock".into(),
            state_dir: directory.path().to_owned(),
            store,
            models: Arc::new(Closed),
            autospawn: true,
        });
        let agents = agents.unwrap();
        agents.load(&registry(keys));
        World {
            agents,
            spawner,
            directory,
        }
    }

    async fn spawn<F>(
        &self,
        work: AgentWork,
        acts: impl FnOnce(Wires) -> F + Send + 'static,
    ) -> anyhow::Result<String>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        *self.spawner.next.lock().unwrap() = Some(Box::new(|wires| Box::pin(acts(wires))));
        let instance = self.agents.spawn("a", ORDER, work, &Closed).await?;
        Ok(instance.session().to_string())
    }

    /// The reason for which no instance is started.
    async fn refused(&self, order: AgentOrder, work: AgentWork) -> String {
        let started = self.agents.spawn("a", order, work, &Closed).await;
        format!("{:#}", started.err().unwrap())
    }

    /// Waits until it has ended, and its place is free.
    async fn ended(&self, session: &str) -> AgentInstance {
        let gone = async {
            while self.agents.instance(session).is_some() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, gone).await.expect("it ends");
        self.agents.one(session, 7, false).unwrap()
    }

    /// Waits until it is so.
    async fn until(&self, session: &str, so: impl Fn(&AgentInstance) -> bool) -> AgentInstance {
        let look = async {
            loop {
                let seen = self.agents.one(session, 7, false).unwrap();
                if so(&seen) {
                    return seen;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, look).await.expect("it becomes so")
    }

    /// One that writes this and ends so.
    async fn wrote(&self, bytes: &[u8], exit: ServerExit) -> AgentInstance {
        let bytes = bytes.to_vec();
        let session = self.spawn(AgentWork::Next, async move |mut wires: Wires| {
            let _ = wires.stdout.write_all(&bytes).await;
            let _ = wires.exit.send(exit);
        });
        let session = session.await.unwrap();
        self.ended(&session).await
    }

    fn kept(&self, session: &str) -> Vec<String> {
        let mut reader = self.agents.events_of(session).unwrap();
        let mut all = Vec::new();
        loop {
            let lines = reader.more().unwrap();
            if lines.is_empty() {
                return all;
            }
            all.extend(
                lines
                    .into_iter()
                    .map(|line| String::from_utf8(line).unwrap()),
            );
        }
    }
}

const TURN: &str = "{\"type\":\"turn.started\"}\n";
const DONE: &str = "{\"type\":\"turn.completed\"}\n";

#[tokio::test(start_paused = true)]
async fn the_exit_of_the_process_decides_last() {
    let world = World::new("");
    let failed = "{\"type\":\"turn.failed\",\"error\":{\"message\":\"no key\"}}\n";
    for (wrote, exit, state, reason) in [
        (DONE, 0, AgentState::Done, None),
        (TURN, 0, AgentState::Done, None),
        ("", 0, AgentState::Done, None),
        (
            DONE,
            3,
            AgentState::Error,
            Some("it ended with exit status 3; on standard error: words"),
        ),
        (failed, 0, AgentState::Error, Some("no key")),
        (
            failed,
            1,
            AgentState::Error,
            Some("it ended with exit status 1; on standard error: words; its last error: no key"),
        ),
    ] {
        let seen = world
            .wrote(wrote.as_bytes(), ServerExit::Status(exit))
            .await;
        assert_eq!(
            (seen.state, seen.reason.as_deref()),
            (state, reason),
            "{wrote} {exit}"
        );
        assert_eq!(seen.attention, state == AgentState::Error);
    }
}

#[tokio::test]
async fn what_is_no_event_is_counted_and_passed_over() {
    let world = World::new("");
    let deep = |levels| format!("{{\"a\":{}{}}}\n", "[".repeat(levels), "]".repeat(levels));
    let mut wrote =
        b"{\"type\":\"thread.started\",\"thread_id\":\"t\"}\nnoise\n[1]\n\"x\"\n\n\xff\xfe\n{\"a\":\"\xff\"}\n"
            .to_vec();
    wrote.extend(deep(10_000).into_bytes());
    wrote.extend(deep(128).into_bytes());
    wrote.extend(deep(127).into_bytes());
    wrote.extend(b"{\"type\":\"turn.started\"");
    let seen = world.wrote(&wrote, ServerExit::Status(0)).await;
    assert_eq!((seen.events, seen.skipped_lines), (2, 8));
    assert_eq!(seen.session_id.as_deref(), Some("t"));
    let kept = world.kept(&seen.id);
    assert!(kept[0].starts_with("{\"n\":1,\"at\":"), "{kept:?}");
    assert!(kept[0].ends_with(
        ",\"state\":\"idle\",\"event\":{\"type\":\"thread.started\",\"thread_id\":\"t\"}}"
    ));
    assert_eq!(kept.len(), 2);
}

#[tokio::test]
async fn a_line_without_end_is_not_kept_and_holds_nothing_up() {
    let world = World::new("");
    let session = world.spawn(AgentWork::Next, async |mut wires: Wires| {
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..64 {
            wires.stdout.write_all(&piece).await.unwrap();
        }
        wires.stdout.write_all(b"\n").await.unwrap();
        wires.stdout.write_all(TURN.as_bytes()).await.unwrap();
        // Until it is told to end.
        let _ = wires.stdin.read(&mut [0]).await;
        let _ = wires.exit.send(ServerExit::Status(0));
    });
    let session = session.await.unwrap();
    let seen = world.until(&session, |seen| seen.events == 1).await;
    assert_eq!((seen.skipped_lines, seen.state), (1, AgentState::Working));
    world.agents.stop(&session, 7, false).unwrap();
    let seen = world.ended(&session).await;
    assert_eq!(
        (seen.state, seen.reason.as_deref()),
        (AgentState::Error, Some("stopped by uid 7"))
    );
}

#[tokio::test]
async fn one_that_writes_on_after_it_was_told_to_stop_ends_all_the_same() {
    let world = World::new("");
    let session = world.spawn(AgentWork::Next, async |mut wires: Wires| {
        let (mut ended, mut written) = (false, 0);
        let mut byte = [0];
        while !(ended && written > 1000) {
            tokio::select! {
                read = wires.stdin.read(&mut byte), if !ended => ended = read.unwrap() == 0,
                wrote = wires.stdout.write_all(TURN.as_bytes()) => {
                    wrote.unwrap();
                    written += u32::from(ended);
                }
            }
        }
        let _ = wires.exit.send(ServerExit::Status(143));
    });
    let session = session.await.unwrap();
    world.until(&session, |seen| seen.events > 10).await;
    world.agents.stop(&session, 7, false).unwrap();
    let seen = world.ended(&session).await;
    assert_eq!(seen.exit.as_deref(), Some("exit status 143 (signal 15)"));
}

#[tokio::test(start_paused = true)]
async fn one_that_says_nothing_for_long_is_stalled_until_it_speaks() {
    let world = World::new("");
    let session = world.spawn(AgentWork::Next, async |mut wires: Wires| {
        sleep(Duration::from_secs(5 * 3600)).await;
        wires.stdout.write_all(TURN.as_bytes()).await.unwrap();
        let _ = wires.stdin.read(&mut [0]).await;
        let _ = wires.exit.send(ServerExit::Status(0));
    });
    let session = session.await.unwrap();
    sleep(Duration::from_secs(4 * 3600 - 60)).await;
    assert!(!world.agents.one(&session, 7, false).unwrap().stalled);
    sleep(Duration::from_secs(120)).await;
    let seen = world.agents.one(&session, 7, false).unwrap();
    assert!(seen.stalled && seen.attention && seen.ended_at.is_none());
    let seen = world.until(&session, |seen| seen.events == 1).await;
    assert!(!seen.stalled && !seen.attention);
    // Calls that wait for a person are a reason to look, too.
    let instance = world.agents.instance(&session).unwrap();
    instance
        .door
        .spent
        .waiting
        .store(1, std::sync::atomic::Ordering::Relaxed);
    let seen = world.agents.one(&session, 7, false).unwrap();
    assert_eq!(
        (seen.state, seen.attention, seen.approvals),
        (AgentState::Blocked, true, 1)
    );
    assert!(seen.reason.unwrap().contains("colibri-mcp approvals"));
    instance
        .door
        .spent
        .waiting
        .store(0, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(
        world.agents.one(&session, 7, false).unwrap().state,
        AgentState::Working
    );
}

#[tokio::test(start_paused = true)]
async fn budgets_of_events_and_minutes_end_an_instance() {
    let world = World::new(r#","budget":{"events":3,"minutes":2}"#);
    let session = world.spawn(AgentWork::Next, async |mut wires: Wires| {
        while wires.stdout.write_all(TURN.as_bytes()).await.is_ok() {
            let told = timeout(Duration::from_millis(1), wires.stdin.read(&mut [0])).await;
            if told.is_ok_and(|read| read.unwrap() == 0) {
                break;
            }
        }
        let _ = wires.exit.send(ServerExit::Status(0));
    });
    let seen = world.ended(&session.await.unwrap()).await;
    assert_eq!((seen.events, seen.state), (3, AgentState::Error));
    assert_eq!(
        seen.reason.as_deref(),
        Some("stopped: its budget of 3 events is used up")
    );
    assert_eq!(world.kept(&seen.id).len(), 3);

    let session = world.spawn(AgentWork::Next, async |mut wires: Wires| {
        let _ = wires.stdin.read(&mut [0]).await;
        let _ = wires.exit.send(ServerExit::Status(0));
    });
    let seen = world.ended(&session.await.unwrap()).await;
    assert_eq!(
        seen.reason.as_deref(),
        Some("stopped: its budget of 2 minutes is used up")
    );
    assert!(seen.ended_at.is_some() && seen.state == AgentState::Error);
}

#[tokio::test(start_paused = true)]
async fn a_task_goes_over_a_pipe_as_one_line_and_its_end_is_the_agents() {
    let world = World::new(r#","stdin":"pipe""#);
    let prompt = "Fix \"it\".\nAll of it.";
    let (told, heard) = oneshot::channel();
    let session = world.spawn(
        AgentWork::Prompt(prompt.to_owned()),
        async |wires: Wires| {
            let Wires {
                stdin,
                mut stdout,
                exit,
            } = wires;
            let mut stdin = BufReader::new(stdin);
            let mut line = String::new();
            stdin.read_line(&mut line).await.unwrap();
            told.send(line).unwrap();
            stdout.write_all(DONE.as_bytes()).await.unwrap();
            let mut rest = String::new();
            stdin.read_to_string(&mut rest).await.unwrap();
            let _ = exit.send(ServerExit::Status(if rest.is_empty() { 0 } else { 9 }));
        },
    );
    let session = session.await.unwrap();
    let line: serde_json::Value = serde_json::from_str(&heard.await.unwrap()).unwrap();
    assert_eq!(
        (&line["id"], &line["type"]),
        (&serde_json::json!(session), &serde_json::json!("prompt"))
    );
    assert!(line["message"].as_str().unwrap().starts_with(prompt));
    let seen = world.ended(&session).await;
    assert_eq!((seen.state, seen.task), (AgentState::Done, Some(1)));
    // It never took the task, which is there for another now.
    assert_eq!(seen.task_status, Some(TaskStatus::Queued));
    let (task, _) = world.agents.board().task(doer(), 1).unwrap();
    assert_eq!(
        (task.said.status, task.for_session),
        (TaskStatus::Queued, None)
    );
}

fn doer() -> BoardActor<'static> {
    BoardActor {
        uid: 7,
        agent: None,
        operator: false,
        groups: None,
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_never_reads_what_it_is_to_do_can_be_stopped() {
    let world = World::new(r#","stdin":"pipe""#);
    let (over, wait) = oneshot::channel::<()>();
    let session = world.spawn(AgentWork::Prompt("x".repeat(9000)), async |wires: Wires| {
        let _ = wait.await;
        drop((wires.stdin, wires.stdout));
        let _ = wires.exit.send(ServerExit::Status(137));
    });
    let session = session.await.unwrap();
    sleep(Duration::from_secs(1)).await;
    world.agents.stop(&session, 7, false).unwrap();
    over.send(()).unwrap();
    assert_eq!(world.ended(&session).await.state, AgentState::Error);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_is_told_so_and_what_is_full_as_well() {
    let world = World::new("");
    let waits = async |mut wires: Wires| {
        let _ = wires.stdin.read(&mut [0]).await;
        let _ = wires.exit.send(ServerExit::Status(0));
    };
    let session = world.spawn(AgentWork::Next, waits).await.unwrap();
    let full = world
        .spawn(AgentWork::Next, waits)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        full.contains("1 of it run already") && full.contains("\"max\" of its entry is 1"),
        "{full}"
    );
    let stranger = AgentOrder {
        person: Caller {
            uid: 8,
            ..ORDER.person
        },
        ..ORDER
    };
    let unknown = world.refused(stranger, AgentWork::Next).await;
    assert!(
        unknown.contains("no agent \"a\" that you may run"),
        "{unknown}"
    );
    assert!(world.agents.facts(8, false).is_empty() && world.agents.list(8, false).is_empty());
    assert_eq!(
        (
            world.agents.facts(8, true).len(),
            world.agents.list(8, true).len()
        ),
        (1, 1)
    );
    let not_yours = world
        .agents
        .stop(&session, 8, false)
        .unwrap_err()
        .to_string();
    assert!(not_yours.contains("no instance"), "{not_yours}");
    assert_eq!(world.agents.count(), 1);

    // Reloaded: it goes on, and says under what.
    world.agents.load(&registry(r#","disabled":true"#));
    let seen = world.agents.one(&session, 7, false).unwrap();
    assert!(
        seen.reason
            .unwrap()
            .contains("its entry was changed; this instance keeps running")
    );
    let disabled = world.refused(ORDER, AgentWork::Next).await;
    assert!(disabled.contains("disabled"), "{disabled}");
    world.agents.load(&LoadedRegistry::default());
    let seen = world.agents.one(&session, 7, false).unwrap();
    assert!(seen.reason.unwrap().contains("removed from the registry"));

    assert!(world.agents.end(Duration::from_secs(10)).await);
    let seen = world.agents.one(&session, 7, false).unwrap();
    assert_eq!(
        seen.reason.as_deref(),
        Some("stopped: the daemon was shut down")
    );
    world.agents.load(&registry(""));
    let late = world
        .spawn(AgentWork::Next, waits)
        .await
        .unwrap_err()
        .to_string();
    assert!(late.contains("daemon is ending"), "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_gives_its_task_back_and_cancels_what_was_made_of_a_prompt() {
    let world = World::new("");
    let board = world.agents.board().clone();
    let new = NewTask {
        title: "t".to_owned(),
        description: String::new(),
        source: String::new(),
        status: TaskStatus::Queued,
        required_capabilities: Vec::new(),
        priority: 1,
        created_by: 7,
        share: None,
        limits: Default::default(),
    };
    let task = board.create(doer(), new, None).unwrap();
    for work in [AgentWork::Task(task.id), AgentWork::Prompt("p".to_owned())] {
        let why = world.refused(ORDER, work).await;
        assert!(
            why.starts_with("a is not started: the helper was killed"),
            "{why}"
        );
    }
    let (task, _) = board.task(doer(), task.id).unwrap();
    assert_eq!(
        (task.said.status, task.for_session),
        (TaskStatus::Queued, None)
    );
    let (made, _) = board.task(doer(), 2).unwrap();
    assert_eq!(made.said.status, TaskStatus::Cancelled);
    let missing = world.refused(ORDER, AgentWork::Task(99)).await;
    assert!(missing.contains("99"), "{missing}");
    assert_eq!(world.agents.count(), 0);
    let left = std::fs::read_dir(world.directory.path().join("agents")).unwrap();
    assert_eq!(left.count(), 0, "nothing is kept of what never ran");
}

#[tokio::test(start_paused = true)]
async fn a_host_agent_is_told_where_its_door_is() {
    let world = World::new(r#","env":{"X":"y"}"#);
    world.wrote(b"", ServerExit::Status(0)).await;
    let asked = world.spawner.asked.lock().unwrap();
    let LaunchSpec::Host { environment, .. } = &asked[0] else {
        panic!("on the host");
    };
    let value = |name: &str| secrecy::ExposeSecret::expose_secret(&environment[name]).to_owned();
    assert_eq!(value("COLIBRI_MCP_SOCKET"), "/doors/x/colibri.sock");
    assert_eq!((value("X"), environment.len()), ("y".to_owned(), 2));
}

#[tokio::test(start_paused = true)]
async fn a_jailed_agent_is_started_only_where_its_door_can_be_found() {
    let world = World::new(r#","jail":{"path":"/roots/a"}"#);
    let refused = world.refused(ORDER, AgentWork::Next).await;
    assert!(
        refused.contains(&format!("{},", SERVICE.socket_directory().display()))
            && refused.contains("/none/c.sock"),
        "{refused}"
    );
    assert!(world.agents.facts(7, false)[0].refusal.is_some());
}

#[tokio::test]
async fn what_ended_with_an_earlier_daemon_is_still_told() {
    let world = World::new("");
    let done = world.wrote(DONE.as_bytes(), ServerExit::Status(0)).await;
    let (started, begun) = oneshot::channel::<()>();
    let session = world.spawn(AgentWork::Next, async |mut wires: Wires| {
        wires.stdout.write_all(TURN.as_bytes()).await.unwrap();
        let _ = begun.await;
        drop(wires);
    });
    let session = session.await.unwrap();
    world.until(&session, |seen| seen.events == 1).await;
    let World {
        directory, agents, ..
    } = world;
    // As if the daemon had been killed.
    let copy = tempfile::tempdir().unwrap();
    let to = copy.path().join("agents");
    std::fs::create_dir(&to).unwrap();
    for file in std::fs::read_dir(directory.path().join("agents")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    let later = World::within(copy, "");
    drop((started, agents));
    let list = later.agents.list(7, false);
    assert_eq!(list.len(), 2);
    let killed = later.agents.one(&session, 7, false).unwrap();
    assert_eq!(killed.state, AgentState::Error);
    assert!(
        killed.ended_at.is_some()
            && killed
                .reason
                .unwrap()
                .contains("the daemon was killed or crashed while it ran")
    );
    assert_eq!(
        later.agents.one(&done.id, 7, false).unwrap().state,
        AgentState::Done
    );
    assert_eq!(later.kept(&done.id).len(), 1);
}
