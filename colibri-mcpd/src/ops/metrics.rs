//! Numbers for Prometheus, as text in the OpenMetrics format, on a Unix socket of their own.
//!
//! No label names a user, a tool or an argument: labels are server ids of the registry, states and
//! codes of ours.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::overview;
use crate::board::TaskCounters;
use crate::daemon::Daemon;
use colibri_api::{
    AgentState, CostSum, Overview, OverviewServer, ServerState as State, TaskStatus,
};
use colibri_store::cost_ledger::Totals;

/// Readers that are served at one time; further ones are only closed.
const MAX_READERS: usize = 16;
/// The longest time for a reader altogether.
const LIMIT: Duration = Duration::from_secs(5);
/// The longest silence of a reader before it gets plain text.
const SILENCE: Duration = Duration::from_millis(500);
/// Longest HTTP request that is read, bytes.
const MAX_REQUEST: usize = 8192;

/// Serves metrics, to the `next` who connects, for as long as this is polled; never ends where
/// nobody can.
pub(crate) async fn serve(next: Option<impl AsyncFn() -> UnixStream>, daemon: &Arc<Daemon>) {
    let Some(next) = next else {
        return std::future::pending().await;
    };
    let places = Arc::new(Semaphore::new(MAX_READERS));
    loop {
        let stream = next().await;
        let Ok(place) = places.clone().try_acquire_owned() else {
            warn!(
                limit = MAX_READERS,
                "too many readers of metrics: one is turned away"
            );
            continue;
        };
        let daemon = daemon.clone();
        tokio::spawn(async move {
            match timeout(LIMIT, answer(daemon, stream)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!("metrics were not read: {error}"),
                Err(_) => debug!("metrics were not read in time"),
            }
            drop(place);
        });
    }
}

/// Answers a reader: in HTTP/1.0 (RFC 1945) where it asks so, else with the text alone.
async fn answer(daemon: Arc<Daemon>, mut stream: UnixStream) -> io::Result<()> {
    const GET: &[u8] = b"GET ";
    let mut request = Vec::with_capacity(1024);
    let mut ended = false;
    let begin = async {
        while request.len() < GET.len() && GET.starts_with(&request) && !ended {
            ended = stream.read_buf(&mut request).await? == 0;
        }
        io::Result::Ok(())
    };
    // Silence is no error: who just connects gets the text.
    timeout(SILENCE, begin).await.unwrap_or(Ok(()))?;
    let http = request.starts_with(GET);
    while http
        && !ended
        && request.len() <= MAX_REQUEST
        && !request.windows(4).any(|end| end == b"\r\n\r\n")
    {
        ended = stream.read_buf(&mut request).await? == 0;
    }
    // The trail's state is behind a lock that a slow disk may hold: not on a thread that serves
    // clients.
    let text = tokio::task::spawn_blocking(move || render(&daemon))
        .await
        .map_err(io::Error::other)?
        .map_err(io::Error::other)?;
    if http {
        let head = format!(
            "HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\
             Content-Length: {}\r\n\r\n",
            text.len()
        );
        stream.write_all(head.as_bytes()).await?;
    }
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    // What was sent and not read would turn the end of the text into an error at the other side.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(())
}

fn render(daemon: &Daemon) -> Result<String, fmt::Error> {
    // What cannot be written now is said elsewhere, and comes later.
    let _ = daemon.chain.ledger.write(&daemon.store);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(MetricsSnapshot {
        overview: overview::of(daemon, None, 0),
        most_queued: daemon.connections.load().most_queued,
        agents: daemon.agents.by_state(None),
        tasks: daemon.board.task_counts(None).ok(),
        taken: daemon.board.counters(),
        costs: daemon.chain.ledger.totals(),
    }));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Numbers of one name: its help, and the value.
type Gauge<T> = (&'static str, &'static str, T);

/// Reads a number of a server.
type OfServer = fn(&OverviewServer) -> u64;

/// Reads a number of a cost.
type OfCost = fn(&CostSum) -> u64;

/// All numbers at one time.
#[derive(Debug)]
struct MetricsSnapshot {
    overview: Overview,
    /// Bytes queued for the client that is furthest behind.
    most_queued: usize,
    /// Instances of agents that run, by state.
    agents: BTreeMap<AgentState, u64>,
    /// Tasks by status; `None`: the store cannot be read.
    tasks: Option<[(TaskStatus, u64); 7]>,
    /// Claims, and tasks that came back to the queue, since the start.
    taken: TaskCounters,
    /// The cost of calls and models since the start.
    costs: Totals,
}

impl MetricsSnapshot {
    fn calls(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let servers = &self.overview.servers;
        let help = "Finished calls.";
        let mut family =
            encoder.encode_descriptor("colibri_calls", help, None, MetricType::Counter)?;
        for server in servers {
            family
                .encode_family(&[("server", &*server.id)])?
                .encode_counter::<NoLabelSet, _, u64>(&server.calls.finished, None)?;
        }
        let help = "Failed calls, by code.";
        let mut family =
            encoder.encode_descriptor("colibri_call_errors", help, None, MetricType::Counter)?;
        for server in servers {
            for (code, count) in &server.calls.errors {
                family
                    .encode_family(&[("server", &*server.id), ("code", code)])?
                    .encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        let help = "Answers of servers that nobody waited for: late, a second time, or to nothing that was asked.";
        let mut family =
            encoder.encode_descriptor("colibri_stray_answers", help, None, MetricType::Counter)?;
        for server in servers {
            family
                .encode_family(&[("server", &*server.id)])?
                .encode_counter::<NoLabelSet, _, u64>(&server.calls.strays, None)?;
        }
        let help = "Requests of servers that went to clients: elicitation, sampling, roots.";
        let mut family =
            encoder.encode_descriptor("colibri_asked", help, None, MetricType::Counter)?;
        for server in servers {
            family
                .encode_family(&[("server", &*server.id)])?
                .encode_counter::<NoLabelSet, _, u64>(&server.calls.asked, None)?;
        }
        let help = "Time from a call's arrival to its answer.";
        let mut family = encoder.encode_descriptor(
            "colibri_call_duration_seconds",
            help,
            None,
            MetricType::Histogram,
        )?;
        for OverviewServer { id, calls, .. } in servers {
            let buckets = calls.buckets.iter();
            let buckets: Vec<_> = buckets
                .map(|(bound, count)| (bound.unwrap_or(f64::INFINITY), *count))
                .collect();
            family
                .encode_family(&[("server", &**id)])?
                .encode_histogram::<NoLabelSet>(calls.seconds, calls.finished, &buckets, None)?;
        }
        Ok(())
    }

    fn states(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "1 for the state that a server is in.";
        let mut family =
            encoder.encode_descriptor("colibri_server_state", help, None, MetricType::Gauge)?;
        for OverviewServer { id, state, .. } in &self.overview.servers {
            let Some(state) = state else { continue };
            for other in State::ALL {
                family
                    .encode_family(&[
                        ("server", &**id),
                        ("state", &other.name().replace(' ', "_")),
                    ])?
                    .encode_gauge(&u64::from(other == *state))?;
            }
        }
        let gauges: [Gauge<OfServer>; 3] = [
            (
                "colibri_server_processes",
                "Processes that take calls.",
                |server| server.processes,
            ),
            (
                "colibri_server_calls_in_flight",
                "Calls sent and not answered.",
                |server| server.in_flight,
            ),
            (
                "colibri_server_queued_bytes",
                "Bytes that wait for a server to read them.",
                |server| server.queued,
            ),
        ];
        for (name, help, value) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for server in self
                .overview
                .servers
                .iter()
                .filter(|server| server.state.is_some())
            {
                family
                    .encode_family(&[("server", &*server.id)])?
                    .encode_gauge(&value(server))?;
            }
        }
        Ok(())
    }

    fn agents(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Instances of agents that run, by what they do.";
        let mut family =
            encoder.encode_descriptor("colibri_agents", help, None, MetricType::Gauge)?;
        for state in AgentState::ALL {
            let count = self.agents.get(&state).copied().unwrap_or_default();
            family
                .encode_family(&[("state", state.name())])?
                .encode_gauge(&count)?;
        }
        Ok(())
    }

    fn tasks(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Tasks, by status.";
        let mut family =
            encoder.encode_descriptor("colibri_tasks", help, None, MetricType::Gauge)?;
        for (status, count) in self.tasks.iter().flatten() {
            family
                .encode_family(&[("status", status.name())])?
                .encode_gauge(count)?;
        }
        let TaskCounters {
            claims,
            claims_of_others,
            requeues,
        } = self.taken;
        let counters = [
            (
                "colibri_task_claims",
                "Claims of tasks since the start.",
                claims,
            ),
            (
                "colibri_task_claims_of_others",
                "Claims of tasks that another user created and shared, since the start.",
                claims_of_others,
            ),
            (
                "colibri_task_requeues",
                "Tasks that came back to the queue since the start.",
                requeues,
            ),
        ];
        for (name, help, value) in counters {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn costs(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counters: [Gauge<OfCost>; 3] = [
            ("colibri_request_bytes", "Bytes of requests.", |cost| {
                cost.bytes_in
            }),
            ("colibri_answer_bytes", "Bytes of answers.", |cost| {
                cost.bytes_out
            }),
            ("colibri_listed_bytes", "Bytes of tools in lists.", |cost| {
                cost.listed_bytes
            }),
        ];
        for (name, help, value) in counters {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (server, cost) in &self.costs.servers {
                family
                    .encode_family(&[("server", &**server)])?
                    .encode_counter::<NoLabelSet, _, u64>(&value(cost), None)?;
            }
        }
        let help = "Tokens of agents' models.";
        let mut family =
            encoder.encode_descriptor("colibri_model_tokens", help, None, MetricType::Counter)?;
        for (agent, cost) in &self.costs.agents {
            for (direction, tokens) in [("in", cost.tokens_in), ("out", cost.tokens_out)] {
                family
                    .encode_family(&[("agent", &**agent), ("direction", direction)])?
                    .encode_counter::<NoLabelSet, _, u64>(&tokens, None)?;
            }
        }
        Ok(())
    }

    /// The daemon's own.
    fn gauges(&self) -> Vec<Gauge<u64>> {
        let all = &self.overview;
        let mut gauges = vec![
            (
                "colibri_uptime_seconds",
                "Time since the daemon started.",
                all.uptime_s,
            ),
            ("colibri_clients", "Connected clients.", all.clients),
            (
                "colibri_calls_in_flight",
                "Calls of all clients without an answer.",
                all.in_flight,
            ),
            (
                "colibri_queued_bytes",
                "Bytes queued for all clients and servers.",
                all.queued,
            ),
            (
                "colibri_client_queued_bytes_max",
                "Bytes queued for the client that is furthest behind.",
                self.most_queued as u64,
            ),
        ];
        let memory = "Resident memory of the daemon.";
        gauges.extend(
            all.resident
                .map(|bytes| ("process_resident_memory_bytes", memory, bytes)),
        );
        if let Some(trail) = &all.trail {
            let failing = "1 while records cannot be written and calls are refused.";
            gauges.extend([
                (
                    "colibri_trail_records",
                    "Records of the trail.",
                    trail.records,
                ),
                (
                    "colibri_trail_synced_records",
                    "Records that are on the disk.",
                    trail.synced,
                ),
                (
                    "colibri_trail_witnessed_records",
                    "Records that a witness vouches for.",
                    trail.witnessed,
                ),
                (
                    "colibri_trail_failing",
                    failing,
                    u64::from(trail.failing.is_some()),
                ),
            ]);
        }
        gauges
    }
}

impl Collector for MetricsSnapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.calls(&mut encoder)?;
        self.states(&mut encoder)?;
        self.agents(&mut encoder)?;
        self.tasks(&mut encoder)?;
        self.costs(&mut encoder)?;
        for (name, help, value) in self.gauges() {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        Ok(())
    }
}
