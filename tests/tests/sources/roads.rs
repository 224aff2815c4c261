//! `docs/roads.md`: the table of the roads by which calls come and the limits that they meet. Each
//! cell names the test that shows it, or says why it is empty.
//!
//! `COLIBRI_WRITE_ROADS=1 cargo test -p colibri-tests --test sources roads` writes the page anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use colibri_policy::{Limit, Road};

use crate::product::repository;

/// A test: its program, and its path in it. A unit test has the file of its module as its program.
type TestPath = (&'static str, &'static str);

/// One limit on one road.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    /// A test over the built programs, or over a daemon in the test's process, shows that it holds.
    Test(TestPath),
    /// A unit test shows that it holds.
    Unit(TestPath),
    /// The daemon cannot tell this road from another, which a test leads into.
    Like(Road, TestPath),
    /// There is nothing to hold here: the reason.
    Empty(&'static str),
    /// Nobody has tried it: what is not known.
    Untried(&'static str),
    /// It does not hold: the row of `docs/attacks.md`, and the test that is expected to fail.
    Fails(&'static str, TestPath),
    /// It holds by the first test, but not in a case that the row has.
    Partly(TestPath, &'static str, TestPath),
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    /// A road that the daemon tells from others.
    Road(Road),
    /// The bridge of chibi, which is a client by lines.
    Chibi,
    /// The gate of an SSH key, by which another host calls: a client by lines that sees one server.
    OtherHost,
    /// A new connection of the same program.
    Reconnection,
    /// A restart of the daemon.
    Restart,
    /// A call whose server gets the answer of a legacy client to what it asked (era translation).
    Elicitation,
    /// A further attempt at a call that failed.
    Attempt,
}

/// The rows that are no [`Road`] of the policy: the daemon cannot tell them, or decides nothing there.
const FURTHER: [Row; 6] = [
    Row::Chibi,
    Row::OtherHost,
    Row::Reconnection,
    Row::Restart,
    Row::Elicitation,
    Row::Attempt,
];

impl Row {
    fn all() -> impl Iterator<Item = Row> {
        Road::ALL.into_iter().map(Row::Road).chain(FURTHER)
    }

    fn name(self) -> &'static str {
        match self {
            Row::Road(road) => road.name(),
            Row::Chibi => "chibi's bridge",
            Row::OtherHost => "another host by SSH",
            Row::Reconnection => "reconnection",
            Row::Restart => "restart of the daemon",
            Row::Elicitation => "answered elicitation",
            Row::Attempt => "next attempt",
        }
    }

    fn cells(self) -> [Cell; Limit::ALL.len()] {
        Limit::ALL.map(|limit| match self {
            Row::Road(road) => cell(road, limit),
            Row::Chibi => Cell::Like(Road::Lines, ("clients", CHIBI)),
            Row::OtherHost => other_host(limit),
            Row::Reconnection => reconnection(limit),
            Row::Restart => restart(limit),
            Row::Elicitation => elicitation(limit),
            Row::Attempt => attempt(limit),
        })
    }
}

const CHIBI: &str = "chibi::the_services_servers_are_offered_and_a_name_in_both_is_the_files";
const NO_AGENT: Cell = Cell::Empty("no agent comes by this road");
const BEGUN: Cell =
    Cell::Empty("the server has begun: a person would be asked about what has happened");
const NO_AGENT_ASKED: Cell = Cell::Empty("an agent is asked nothing, so it answers nothing");
const ONE_INSTANCE: Cell = Cell::Empty("an instance keeps what its entry said when it was started");
const SAME_CALL: Cell = Cell::Empty("a call does not change on its way");
const WITH_PIN: Cell = Cell::Empty("a schema changes with its definition, which is the pin's");
const COUNTED: Cell = Cell::Empty("a request is counted once, where it enters");
const CHANGES_NOTHING: Cell = Cell::Empty("it changes nothing");
const NO_TASK: Cell = Cell::Empty("only tools/call takes params.task");

/// The quota is asked as a line is read, whoever writes it.
const QUOTA_OF_LINES: Cell = Cell::Like(
    Road::Lines,
    (
        "relay",
        "roads::refused::the_quota_of_the_trail_refuses_a_person_on_every_road",
    ),
);

/// The unit test of the order of refusals, which is the same on every road.
const REFUSED: Cell = Cell::Unit((
    "crates/colibri-policy/src/decision/tests.rs",
    "each_fault_is_told_before_those_after_it_and_before_any_wait",
));

/// The unit test of what holds a call, on every road.
const HELD: Cell = Cell::Unit((
    "crates/colibri-policy/src/decision/tests.rs",
    "a_call_that_its_server_has_begun_is_refused_but_not_held",
));

/// The unit tests of a release.
const RELEASED: Cell = Cell::Unit((
    "crates/colibri-policy/src/decision/tests.rs",
    "a_release_passes_for_what_was_allowed_and_for_nothing_else",
));

const fn relay(path: &'static str) -> Cell {
    Cell::Test(("relay", path))
}

const fn board(path: &'static str) -> Cell {
    Cell::Test(("board", path))
}

const fn inbound(path: &'static str) -> Cell {
    Cell::Test(("inbound", path))
}

const fn fails(row: &'static str, path: &'static str) -> Cell {
    Cell::Fails(row, ("relay", path))
}

/// A cell of a road by which tools are called. `walked` is the test that walks the limits that
/// refuse, `of_agent` the one that does so for an agent.
fn tool_call(limit: Limit, walked: &'static str, of_agent: Option<&'static str>) -> Cell {
    match (limit, of_agent) {
        (Limit::Lease, Some(_)) => REFUSED,
        (Limit::AgentTools, Some(path)) => relay(path),
        (Limit::AgentMay, Some(_)) => {
            relay("roads::held::the_list_of_its_entry_holds_an_agent_on_every_road")
        }
        (Limit::Lease | Limit::AgentTools | Limit::AgentMay, None) => NO_AGENT,
        (Limit::Budget, _) => relay("roads::refused::a_spent_budget_refuses_on_every_road"),
        (Limit::Gate, _) => relay("roads::refused::a_closed_gate_closes_every_road"),
        (Limit::RuleConfirm, _) => relay("roads::held::a_rule_that_asks_holds_on_every_road"),
        (Limit::TaskMay, _) => relay("roads::held::the_list_of_a_task_holds_who_has_claimed_it"),
        (Limit::Origin, _) => relay("roads::held::a_destination_that_was_read_holds"),
        (Limit::Quota, _) => {
            relay("roads::refused::the_quota_of_the_trail_refuses_a_person_on_every_road")
        }
        (
            Limit::Rights
            | Limit::RuleDeny
            | Limit::Label
            | Limit::TaskParameter
            | Limit::Pin
            | Limit::Contract
            | Limit::Schema
            | Limit::Account
            | Limit::Breaker,
            _,
        ) => relay(walked),
    }
}

/// A cell of a road by which something else than a tool is asked for. `walked` is the test that
/// walks the limits that refuse.
fn named(limit: Limit, walked: &'static str) -> Cell {
    match limit {
        Limit::Lease | Limit::Budget => REFUSED,
        Limit::Gate
        | Limit::Rights
        | Limit::AgentTools
        | Limit::RuleDeny
        | Limit::Label
        | Limit::Pin
        | Limit::Contract
        | Limit::Account
        | Limit::Breaker => relay(walked),
        Limit::RuleConfirm => {
            relay("roads::named::a_rule_that_asks_holds_prompts_resources_and_completions")
        }
        Limit::TaskParameter => NO_TASK,
        Limit::Schema => Cell::Empty("only a tool has a schema"),
        Limit::TaskMay | Limit::AgentMay | Limit::Origin => CHANGES_NOTHING,
        Limit::Quota => relay("shares::one_user_does_not_fill_the_trail"),
    }
}

/// What a limit is on a road, and what shows it.
fn cell(road: Road, limit: Limit) -> Cell {
    match road {
        Road::Lines => match limit {
            Limit::Rights => Cell::Partly(
                ("relay", "roads::refused::by_lines"),
                "R7",
                (
                    "relay",
                    "roads::refused::what_a_user_is_denied_of_an_entry_holds_for_its_accounts",
                ),
            ),
            Limit::Origin => Cell::Partly(
                ("relay", "roads::held::a_destination_that_was_read_holds"),
                "B6",
                (
                    "relay",
                    "roads::held::a_destination_that_a_server_without_labels_returned_holds",
                ),
            ),
            _ => tool_call(limit, "roads::refused::by_lines", None),
        },
        Road::HttpSession => tool_call(limit, "roads::refused::by_a_session_over_http", None),
        Road::HttpRequest => match limit {
            Limit::TaskMay => fails(
                "B1",
                "roads::held::the_list_of_a_task_holds_in_the_next_request_over_http",
            ),
            _ => tool_call(limit, "roads::refused::by_requests_over_http", None),
        },
        Road::AgentSocket => match limit {
            Limit::Lease => {
                board("postgres::a_host_that_stood_still_ends_its_agents_when_it_goes_on")
            }
            Limit::AgentTools => Cell::Partly(
                ("relay", "roads::refused::by_an_agent_socket"),
                "B10",
                (
                    "relay",
                    "roads::refused::what_an_agents_entry_denies_of_an_entry_holds_for_its_accounts",
                ),
            ),
            Limit::Quota => {
                relay("roads::refused::the_quota_of_the_trail_refuses_an_agent_on_every_road")
            }
            _ => {
                let walked = "roads::refused::by_an_agent_socket";
                tool_call(limit, walked, Some(walked))
            }
        },
        Road::Script => match limit {
            Limit::Budget => Cell::Partly(
                (
                    "relay",
                    "roads::refused::a_spent_budget_refuses_on_every_road",
                ),
                "B15",
                (
                    "relay",
                    "roads::refused::what_an_agents_script_reads_counts_for_the_budget_of_its_entry",
                ),
            ),
            Limit::TaskParameter => Cell::Empty("a script cannot say params.task"),
            Limit::TaskMay => Cell::Partly(
                (
                    "relay",
                    "roads::held::the_list_of_a_task_holds_who_has_claimed_it",
                ),
                "B1",
                (
                    "relay",
                    "roads::held::the_list_of_a_task_holds_in_a_script_on_another_connection",
                ),
            ),
            _ => tool_call(
                limit,
                "roads::refused::by_a_script",
                Some("roads::refused::by_an_agents_script"),
            ),
        },
        Road::Schedule => match limit {
            Limit::Budget => REFUSED,
            Limit::Gate => board("tasks::schedules_create_tasks_and_call_tools_through_the_chain"),
            Limit::RuleConfirm => relay("roads::held::a_rule_that_asks_holds_a_schedule"),
            Limit::TaskParameter => Cell::Empty("a schedule cannot say params.task"),
            Limit::TaskMay => {
                board("flow::a_claim_binds_its_connection_to_what_the_task_may_change")
            }
            Limit::Origin => relay("roads::held::a_destination_that_was_read_holds_a_schedule"),
            Limit::Quota => QUOTA_OF_LINES,
            _ => tool_call(limit, "roads::refused::by_a_schedule", None),
        },
        Road::Summary => match limit {
            Limit::Gate => {
                relay("summaries::nothing_is_sent_without_the_flag_or_the_gate_or_the_adapter")
            }
            Limit::Contract => relay(
                "summaries::the_adapter_that_ships_asks_a_provider_under_the_contract_that_ships",
            ),
            Limit::Lease | Limit::AgentTools | Limit::AgentMay => NO_AGENT,
            Limit::Budget
            | Limit::Rights
            | Limit::RuleDeny
            | Limit::Label
            | Limit::TaskParameter
            | Limit::Pin
            | Limit::Schema
            | Limit::Account => REFUSED,
            Limit::RuleConfirm => HELD,
            Limit::TaskMay | Limit::Origin => {
                Cell::Empty("the daemon claims no task, and reads nothing on this connection")
            }
            Limit::Quota => QUOTA_OF_LINES,
            Limit::Breaker => Cell::Unit((
                "colibri-mcpd/src/servers/breaker.rs",
                "an_open_one_lets_one_call_pass_a_minute",
            )),
        },
        Road::CallTool => tool_call(
            limit,
            "roads::refused::by_colibri_call_tool",
            Some("roads::refused::by_colibri_call_tool_of_an_agent"),
        ),
        Road::ExternalCallTool => tool_call(
            limit,
            "roads::refused::by_colibri_external_mcp_call_tool",
            Some("roads::refused::by_colibri_external_mcp_call_tool_of_an_agent"),
        ),
        Road::Prompt => match limit {
            Limit::Origin => fails(
                "R4",
                "roads::named::a_destination_that_was_read_holds_prompts",
            ),
            _ => named(limit, "roads::named::prompts"),
        },
        Road::Resource => match limit {
            Limit::Contract => Cell::Empty("a contract says nothing of resources"),
            Limit::Origin => fails(
                "R4",
                "roads::named::a_destination_that_was_read_holds_resources",
            ),
            _ => named(limit, "roads::named::resources"),
        },
        Road::Completion => match limit {
            Limit::Contract => fails(
                "R3",
                "roads::named::a_contract_on_prompts_holds_their_completions",
            ),
            Limit::Origin => fails(
                "R4",
                "roads::named::a_destination_that_was_read_holds_completions",
            ),
            _ => named(limit, "roads::named::completions"),
        },
        Road::EntryMethod => match limit {
            Limit::RuleDeny | Limit::RuleConfirm => {
                Cell::Empty("an entry has no rule about its methods: it lists those that are free")
            }
            Limit::Pin => Cell::Empty("a method has no definition"),
            Limit::Contract => Cell::Empty("a contract says nothing of methods"),
            Limit::Account => Cell::Empty("a method names no server: the first by id has it"),
            Limit::TaskMay => relay("roads::named::the_list_of_a_task_holds_methods_of_an_entry"),
            Limit::AgentMay => {
                relay("roads::named::the_list_of_its_entry_holds_methods_of_an_entry")
            }
            Limit::Origin => fails(
                "R4",
                "roads::named::a_destination_that_was_read_holds_methods_of_an_entry",
            ),
            _ => named(limit, "roads::named::methods_of_an_entry"),
        },
        Road::Subscription => subscription(limit),
        Road::ServerTask => server_task(limit),
        Road::Redirect => match limit {
            Limit::Quota => COUNTED,
            Limit::Budget => REFUSED,
            _ => tool_call(
                limit,
                "roads::refused::by_a_redirect",
                Some("roads::refused::by_a_redirect"),
            ),
        },
        Road::Approval => match limit {
            Limit::Lease | Limit::RuleConfirm => RELEASED,
            Limit::AgentTools | Limit::AgentMay => ONE_INSTANCE,
            Limit::TaskParameter => SAME_CALL,
            Limit::Schema => WITH_PIN,
            Limit::TaskMay => {
                inbound("confirm::a_reason_that_comes_while_a_call_waits_is_asked_about_once")
            }
            Limit::Origin => Cell::Unit((
                "crates/colibri-policy/src/decision/tests.rs",
                "who_allowed_a_rule_has_not_allowed_a_destination_that_was_read_meanwhile",
            )),
            Limit::Quota => COUNTED,
            Limit::Budget
            | Limit::Gate
            | Limit::Rights
            | Limit::RuleDeny
            | Limit::Label
            | Limit::Pin
            | Limit::Contract
            | Limit::Account
            | Limit::Breaker => {
                relay("roads::changed::what_comes_while_a_call_waits_for_a_person_holds")
            }
        },
        Road::InputRetry => match limit {
            Limit::Lease | Limit::AgentTools | Limit::AgentMay => NO_AGENT_ASKED,
            Limit::RuleConfirm | Limit::TaskMay | Limit::Origin => BEGUN,
            Limit::TaskParameter => SAME_CALL,
            Limit::Schema => WITH_PIN,
            Limit::Quota => Cell::Test(("clients", "http::limits_are_answered_with_their_errors")),
            Limit::Budget
            | Limit::Gate
            | Limit::Rights
            | Limit::RuleDeny
            | Limit::Label
            | Limit::Pin
            | Limit::Contract
            | Limit::Account
            | Limit::Breaker => {
                relay("roads::changed::what_comes_while_a_server_waits_for_a_retry_holds")
            }
        },
    }
}

fn subscription(limit: Limit) -> Cell {
    let walked = ("relay", "roads::named::subscriptions");
    match limit {
        Limit::Gate => Cell::Partly(
            walked,
            "R6",
            (
                "relay",
                "roads::named::a_closed_gate_holds_subscriptions_to_a_task_of_a_server",
            ),
        ),
        Limit::Rights => Cell::Partly(
            walked,
            "R6",
            (
                "relay",
                "roads::named::a_right_that_is_gone_holds_subscriptions_to_a_task_of_a_server",
            ),
        ),
        Limit::Budget => fails(
            "R6",
            "roads::named::a_spent_budget_holds_subscriptions_to_a_task_of_a_server",
        ),
        Limit::Lease => REFUSED,
        Limit::AgentTools | Limit::RuleDeny | Limit::RuleConfirm | Limit::Label | Limit::Pin => {
            Cell::Test(walked)
        }
        Limit::Contract => Cell::Empty("a contract says nothing of resources"),
        Limit::TaskParameter => NO_TASK,
        Limit::Schema => Cell::Empty("only a tool has a schema"),
        Limit::TaskMay | Limit::AgentMay | Limit::Origin => CHANGES_NOTHING,
        Limit::Account => Cell::Empty("a URI names an account, and no entry"),
        Limit::Quota => relay("shares::one_user_does_not_fill_the_trail"),
        Limit::Breaker => Cell::Empty("a subscription is no call, and no trial"),
    }
}

fn server_task(limit: Limit) -> Cell {
    match limit {
        Limit::Lease => REFUSED,
        Limit::Budget | Limit::Gate | Limit::Rights => {
            relay("roads::named::budget_gate_and_rights_hold_requests_about_a_task_of_a_server")
        }
        Limit::AgentTools => relay(
            "roads::named::what_an_agents_entry_denies_holds_requests_about_a_task_of_a_server",
        ),
        Limit::RuleDeny => fails(
            "R5",
            "roads::named::a_rule_that_denies_holds_requests_about_a_task_of_a_server",
        ),
        Limit::RuleConfirm => fails(
            "R5",
            "roads::named::a_rule_that_asks_holds_what_changes_a_task_of_a_server",
        ),
        Limit::Label => fails(
            "R5",
            "roads::named::a_label_that_fits_nothing_holds_requests_about_a_task_of_a_server",
        ),
        Limit::TaskMay => fails(
            "R5",
            "roads::named::the_list_of_a_task_holds_what_changes_a_task_of_a_server",
        ),
        Limit::Breaker => fails(
            "R5",
            "roads::named::an_open_breaker_holds_requests_about_a_task_of_a_server",
        ),
        Limit::AgentMay => fails(
            "R5",
            "roads::named::the_list_of_its_entry_holds_what_changes_a_task_of_a_server",
        ),
        Limit::TaskParameter => NO_TASK,
        Limit::Pin => fails(
            "R5",
            "roads::named::a_definition_that_changed_holds_requests_about_a_task_of_a_server",
        ),
        Limit::Contract => Cell::Empty("a contract says nothing of tasks of a server"),
        Limit::Schema => Cell::Empty("only a tool has a schema"),
        Limit::Origin => fails(
            "R5",
            "roads::named::a_destination_that_was_read_holds_what_changes_a_task_of_a_server",
        ),
        Limit::Account => Cell::Empty("the id names one task of one account"),
        Limit::Quota => relay("shares::one_user_does_not_fill_the_trail"),
    }
}

fn other_host(limit: Limit) -> Cell {
    match limit {
        Limit::TaskMay => {
            Cell::Empty("the host whose session has the task decides before it calls this one")
        }
        Limit::Quota => Cell::Like(
            Road::Lines,
            (
                "relay",
                "ssh::two_hosts_record_a_call_under_each_others_numbers",
            ),
        ),
        _ => tool_call(limit, "roads::refused::by_the_gate_of_an_ssh_key", None),
    }
}

fn reconnection(limit: Limit) -> Cell {
    match limit {
        Limit::TaskMay => fails(
            "B1",
            "roads::held::the_list_of_a_task_holds_after_a_reconnect",
        ),
        Limit::Origin => relay("roads::held::a_destination_that_was_read_holds_after_a_reconnect"),
        Limit::AgentMay => relay("roads::held::the_list_of_its_entry_holds_an_agent_on_every_road"),
        _ => Cell::Empty("a connection remembers nothing of it"),
    }
}

fn restart(limit: Limit) -> Cell {
    match limit {
        Limit::TaskMay => fails(
            "B1",
            "roads::held::the_list_of_a_task_holds_after_a_restart_of_the_daemon",
        ),
        Limit::Origin => {
            Cell::Empty("what sessions of people have read is forgotten, as docs/flow.md says")
        }
        Limit::Budget => {
            relay("cost::what_a_person_set_and_spent_outlasts_the_daemon_and_a_day_does_not")
        }
        Limit::Pin => relay("pins::a_daemon_that_restarts_forgets_nothing"),
        Limit::Lease | Limit::AgentTools | Limit::AgentMay => {
            Cell::Empty("an instance ends with its daemon")
        }
        _ => Cell::Empty("the files are read again; nothing is remembered"),
    }
}

fn elicitation(limit: Limit) -> Cell {
    match limit {
        Limit::Budget => fails(
            "R1",
            "roads::changed::a_spent_budget_holds_an_answer_to_the_server",
        ),
        Limit::Gate => fails(
            "R1",
            "roads::changed::a_closed_gate_holds_an_answer_to_the_server",
        ),
        Limit::Rights => fails(
            "R1",
            "roads::changed::a_right_that_is_gone_holds_an_answer_to_the_server",
        ),
        Limit::Breaker => fails(
            "R1",
            "roads::changed::an_open_breaker_holds_an_answer_to_the_server",
        ),
        Limit::RuleDeny | Limit::Label | Limit::Pin | Limit::Contract | Limit::Account => {
            relay("roads::changed::what_a_server_or_its_entry_says_holds_an_answer_to_the_server")
        }
        Limit::Lease | Limit::AgentTools | Limit::AgentMay => NO_AGENT_ASKED,
        Limit::RuleConfirm | Limit::TaskMay | Limit::Origin => BEGUN,
        Limit::TaskParameter => SAME_CALL,
        Limit::Schema => WITH_PIN,
        Limit::Quota => COUNTED,
    }
}

fn attempt(limit: Limit) -> Cell {
    match limit {
        Limit::Budget => fails(
            "R2",
            "roads::changed::a_spent_budget_holds_the_next_attempt",
        ),
        Limit::Gate => Cell::Fails(
            "R2",
            (
                "inbound",
                "roads::a_gate_that_is_closed_holds_the_next_attempt",
            ),
        ),
        Limit::Rights => Cell::Fails(
            "R2",
            (
                "inbound",
                "roads::a_right_that_is_gone_holds_the_next_attempt",
            ),
        ),
        Limit::Breaker => fails(
            "R2",
            "roads::changed::an_open_breaker_holds_the_next_attempt",
        ),
        Limit::RuleDeny | Limit::Label | Limit::Pin | Limit::Contract | Limit::Account => {
            relay("roads::changed::what_a_server_or_its_entry_says_holds_the_next_attempt")
        }
        Limit::Lease => Cell::Untried("a lease that ends between two attempts"),
        Limit::AgentTools | Limit::AgentMay => ONE_INSTANCE,
        Limit::RuleConfirm => {
            Cell::Empty("a rule that comes is an entry that changed, which ends the call")
        }
        Limit::TaskMay => Cell::Fails(
            "R2",
            (
                "inbound",
                "roads::a_task_that_was_claimed_meanwhile_holds_the_next_attempt",
            ),
        ),
        Limit::Origin => Cell::Untried("a destination that is read between two attempts"),
        Limit::TaskParameter => SAME_CALL,
        Limit::Schema => WITH_PIN,
        Limit::Quota => COUNTED,
    }
}

impl Cell {
    fn tests(self) -> Vec<TestPath> {
        match self {
            Cell::Test(test) | Cell::Unit(test) | Cell::Like(_, test) | Cell::Fails(_, test) => {
                vec![test]
            }
            Cell::Partly(test, _, failing) => vec![test, failing],
            Cell::Empty(_) | Cell::Untried(_) => Vec::new(),
        }
    }

    /// The row of `docs/attacks.md`, and the test that is expected to fail.
    fn failing(self) -> Option<(&'static str, TestPath)> {
        match self {
            Cell::Fails(row, test) | Cell::Partly(_, row, test) => Some((row, test)),
            _ => None,
        }
    }

    /// What the table shows.
    fn mark(self) -> &'static str {
        match self {
            Cell::Test(_) => "✓",
            Cell::Unit(_) => "u",
            Cell::Like(..) => "=",
            Cell::Empty(_) => "·",
            Cell::Untried(_) => "?",
            Cell::Fails(row, _) => row,
            Cell::Partly(_, row, _) => row,
        }
    }

    /// What the list below the table says of it.
    fn sentence(self) -> String {
        let code = |(program, path): TestPath| format!("`{program}: {path}`");
        match self {
            Cell::Test(test) | Cell::Unit(test) => code(test),
            Cell::Like(road, test) => format!("as {}: {}", road.name(), code(test)),
            Cell::Empty(reason) => format!("nothing to hold: {reason}"),
            Cell::Untried(what) => format!("not tried: {what}"),
            Cell::Fails(row, test) => format!("**{row}**, expected to fail: {}", code(test)),
            Cell::Partly(test, row, failing) => {
                format!(
                    "{}; **{row}**, expected to fail: {}",
                    code(test),
                    code(failing)
                )
            }
        }
    }
}

const FRONT: &str = "\
# Roads and limits

A call comes to the daemon by a road, and each limit has to hold on each road. This page is the table of both. It is
printed from `tests/tests/sources/roads.rs`: a road or a limit that is added to `crates/colibri-policy/src/decision/road.rs`
does not compile there before it has its cells. After a change,
`COLIBRI_WRITE_ROADS=1 cargo test -p colibri-tests --test sources roads` writes the page anew.

The last six rows are no roads of the policy. The daemon cannot tell the first two from lines. A reconnection and a restart
are what a limit has to outlast. An answered elicitation and a next attempt go on at the server without a decision.

| mark | meaning |
|---|---|
| ✓ | a test over the built programs, or over a daemon in the test's process, shows that the limit holds |
| u | a unit test of the decision shows it |
| = | the daemon cannot tell this road from lines |
| · | there is nothing to hold |
| ? | nobody has tried it |
| B…, R… | the limit does not hold, or not in every case: a row of [attacks.md](attacks.md#open-on-some-roads), and a test that is expected to fail |
";

/// The page.
fn page() -> String {
    let mut page = format!("{FRONT}\n## The table\n\n| |");
    for limit in Limit::ALL {
        let _ = write!(page, " {} |", limit.name());
    }
    page += "\n|---|";
    page += &"---|".repeat(Limit::ALL.len());
    page.push('\n');
    for row in Row::all() {
        let _ = write!(page, "| {} |", row.name());
        for cell in row.cells() {
            let _ = write!(page, " {} |", cell.mark());
        }
        page.push('\n');
    }
    page += "\n## The cells\n";
    for row in Row::all() {
        let _ = write!(page, "\n### {}\n\n", row.name());
        // Limits of which the same is said stand together, in the order of the first.
        let mut said: Vec<(String, Vec<&str>)> = Vec::new();
        for (limit, cell) in Limit::ALL.into_iter().zip(row.cells()) {
            let sentence = cell.sentence();
            match said.iter_mut().find(|(known, _)| *known == sentence) {
                Some((_, limits)) => limits.push(limit.name()),
                None => said.push((sentence, vec![limit.name()])),
            }
        }
        for (sentence, limits) in said {
            let _ = writeln!(page, "- {}: {sentence}", limits.join(", "));
        }
    }
    page
}

/// The source of a test: its function, as it stands in its file.
fn source((program, path): TestPath) -> Option<String> {
    let root = repository();
    let (mut modules, name) = match path.rsplit_once("::") {
        Some((modules, name)) => (modules.replace("::", "/"), name),
        None => (String::new(), path),
    };
    let files = if program.ends_with(".rs") {
        vec![root.join(program)]
    } else {
        let folder = match program {
            "inbound" => root.join("colibri-mcpd/tests/inbound"),
            program => root.join("tests/tests").join(program),
        };
        if modules.is_empty() {
            modules = "main".to_owned();
        }
        let own = folder.join(format!("{modules}.rs"));
        vec![own, folder.join(modules).join("mod.rs")]
    };
    let text = files
        .iter()
        .find_map(|file| fs::read_to_string(file).ok())?;
    let at = text.find(&format!("fn {name}() {{"))?;
    // The attribute stands above it, with nothing but further attributes between.
    let before = text[..at].rsplit("\n\n").next()?;
    let is_test = before.contains("#[test]") || before.contains("#[tokio::test");
    let body = text[at..].split("\n}\n").next()?;
    is_test.then(|| body.to_owned())
}

#[test]
fn the_page_of_the_roads_is_what_the_table_says() {
    let path = repository().join("docs/roads.md");
    let page = page();
    if std::env::var_os("COLIBRI_WRITE_ROADS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert!(
        fs::read_to_string(path).unwrap_or_default() == page,
        "docs/roads.md is another: COLIBRI_WRITE_ROADS=1 cargo test -p colibri-tests --test sources roads"
    );
}

#[test]
fn each_cell_names_a_test_that_exists() {
    for row in Row::all() {
        for (limit, cell) in Limit::ALL.into_iter().zip(row.cells()) {
            for test in cell.tests() {
                assert!(source(test).is_some(), "{row:?} {limit:?}: {test:?}");
            }
        }
    }
}

#[test]
fn each_row_that_a_cell_names_is_a_finding_that_is_open() {
    let attacks = fs::read_to_string(repository().join("docs/attacks.md")).unwrap();
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for row in Row::all() {
        for (finding, test) in row.cells().into_iter().filter_map(Cell::failing) {
            let body = source(test).unwrap();
            assert!(
                body.contains(&format!("\"{finding}\"")),
                "{test:?} is not expected to fail because of {finding}"
            );
            *rows.entry(finding).or_default() += 1;
        }
    }
    for finding in rows.keys() {
        assert!(
            attacks.contains(&format!("- **{finding}: ")),
            "docs/attacks.md has no row {finding}"
        );
    }
}

#[test]
fn a_test_that_is_gone_would_be_found() {
    assert!(source(("relay", "roads::refused::by_lines")).is_some());
    assert!(source(("relay", "roads::refused::by_pigeon")).is_none());
    assert!(source(("relay", "roads::refused::walk")).is_none());
}
