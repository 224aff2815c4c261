//! The order of the steps, and what a wait and a release are.

use std::borrow::Cow;
use std::sync::Arc;

use colibri_api::CostDay;

use super::*;
use crate::agent_tools::AgentTools;
use crate::check::{SchemaCheck, ToolCheck};
use crate::clients::Clients;
use crate::contract::Contract;
use crate::flow_labels::ToolLabels;
use crate::gates::{Caller, Gates};
use crate::may::MayList;
use crate::pins::PinStatus;
use crate::session_flow::{BoundMay, FlowCall, FlowSuspension, MayPlace, SessionFlow};
use crate::usage::Terms;
use crate::user_database::SystemAccounts;

/// What can stand against a call, in the order in which it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Lease,
    Budget,
    Gate,
    Operator,
    Account,
    Rights,
    Rule,
    Task,
    Pin,
    Skill,
    Contract,
    Schema,
    Completion,
}

const ORDER: [(Fault, Code, &str); 13] = [
    (Fault::Lease, Code::StoreUnavailable, "lease:coder"),
    (
        Fault::Budget,
        Code::BudgetSpent,
        "agents.coder.budget.session_bytes",
    ),
    (Fault::Gate, Code::GateClosed, "narrow:external-call"),
    (
        Fault::Operator,
        Code::PolicyDenied,
        "clients.json:1: others.operator",
    ),
    (
        Fault::Account,
        Code::PolicyDenied,
        "clients.json:1: others.accounts",
    ),
    (
        Fault::Rights,
        Code::PolicyDenied,
        "clients.json:1: others.servers",
    ),
    (
        Fault::Rule,
        Code::PolicyDenied,
        "r.json: servers.git.tools.deny[0]",
    ),
    (Fault::Task, Code::NotSupportedYet, "params.task"),
    (Fault::Pin, Code::PinChanged, "pin:git/push"),
    (Fault::Skill, Code::PinChanged, "pin:git/skill://a"),
    (
        Fault::Contract,
        Code::ContractDenied,
        "c.json:1: tools.push",
    ),
    (Fault::Schema, Code::SchemaInvalid, "inputSchema"),
    (
        Fault::Completion,
        Code::NotOffered,
        "capabilities.completions",
    ),
];

const DEFINITION: &[u8] = br#"{"name":"push","inputSchema":{"type":"object","required":["b"]}}"#;
const CONTRACT: &[u8] =
    br#"{"tools":{"push":{"reason":"a is small","when":{"properties":{"a":{"maximum":9}}}}}}"#;

struct Compiled(ToolCheck);

impl CompiledCheck for Compiled {
    fn compiled(&self) -> &ToolCheck {
        &self.0
    }
}

/// A call by its faults, its rule, the limits of its session, and what was allowed of it.
#[derive(Default)]
struct Case<'a> {
    road: Option<Road>,
    faults: &'a [Fault],
    confirm: Option<&'a str>,
    session: Option<&'a SessionFlow>,
    /// True if its server takes no calls now.
    is_unavailable: bool,
    allowed: Option<&'a SuspensionReasons>,
}

impl Case<'_> {
    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    fn decide(&self) -> CallDecision {
        let granted = match self.has(Fault::Rights) {
            true => r#"{"docs":["*"]}"#,
            false => r#"{"git":["push"]}"#,
        };
        let clients = format!(r#"{{"others":{{"gates":["external-call"],"servers":{granted}}}}}"#);
        let clients =
            Clients::parse(clients.as_bytes(), "clients.json", Box::new(SystemAccounts)).unwrap();
        let rights = clients.rights(&Caller {
            uid: 4_000_000,
            gid: 4_000_000,
            pid: None,
        });
        let contract = self
            .has(Fault::Contract)
            .then(|| Arc::new(Contract::parse(CONTRACT, "c.json").unwrap()));
        let check = Compiled(ToolCheck::new(
            "git",
            "push",
            DEFINITION,
            SchemaCheck::All,
            contract,
        ));
        let arguments: &[u8] = match self.has(Fault::Schema) {
            true => br#"{"a":10}"#,
            false => br#"{"a":10,"b":"eve@evil.example"}"#,
        };
        let verdict = match (self.has(Fault::Rule), self.confirm) {
            (true, _) => RuleVerdict::Deny {
                rule: RulePlace::outside_files("r.json: servers.git.tools.deny[0]"),
                fault: None,
            },
            (false, Some(rule)) => RuleVerdict::Confirm {
                rule: RulePlace::outside_files(rule),
            },
            (false, None) => RuleVerdict::Allow,
        };
        let changed = PinStatus::Changed {
            members: vec!["/description".to_owned()],
        };
        let tools = AgentTools::default();
        let max_bytes_place = RulePlace::outside_files("agents.coder.budget.session_bytes");
        let labels = ToolLabels {
            sinks: vec!["b".to_owned()],
            ..ToolLabels::default()
        };
        let account_refusal = rights.account_among("git", &["git-work"]).unwrap_err();
        let unavailable = Failure::new(Code::IntegrationUnavailable, "git is left alone");
        decide(&CallFacts {
            road: self.road.unwrap_or(Road::Lines),
            caller: ClientFacts {
                rights: &rights,
                daemon_gates: Gates::new(true, true),
                connection_gates: match self.has(Fault::Gate) {
                    true => Gates::new(true, false),
                    false => Gates::new(true, true),
                },
                agent: Some(CallingAgent {
                    id: "coder",
                    tools: &tools,
                    max_bytes: self.has(Fault::Budget).then_some(100),
                    max_bytes_place: &max_bytes_place,
                    lease_over: self.has(Fault::Lease).then_some("the lease is over"),
                }),
                budget: BudgetStatus {
                    day: CostDay(1),
                    terms: Terms::default(),
                    spent: 100,
                    before: 0,
                    most: self.has(Fault::Budget).then_some(100),
                },
            },
            target: TargetFacts {
                server: "git",
                is_own: false,
                feature: Feature::Tool,
                name: "push",
                gate: Gate::External,
                is_counted: true,
                is_free_for_people: false,
                is_free_for_agents: false,
                is_for_operators: self.has(Fault::Operator),
                account_refusal: self.has(Fault::Account).then_some(&account_refusal),
                verdict: Cow::Owned(verdict),
                refuses_tasks: true,
                pin: Some(match self.has(Fault::Pin) {
                    true => &changed,
                    false => &PinStatus::Approved,
                }),
                skills: match self.has(Fault::Skill) {
                    true => vec![SkillFacts {
                        name: "skill://a",
                        pin: &changed,
                        lacks_file: true,
                    }],
                    false => Vec::new(),
                },
                prompt_contract: None,
                argument_check: Some(&check),
                lacks_completions: self.has(Fault::Completion),
                suspension: SuspensionFacts::Item(FlowCall {
                    server: "git",
                    tool: "push",
                    reads: false,
                    labels: Some(&labels),
                    contract: None,
                    arguments,
                    is_scripted: false,
                }),
            },
            arguments,
            as_task: self.has(Fault::Task),
            session_flow: &|| self.session,
            unavailable: &|| self.is_unavailable.then(|| unavailable.clone()),
            allowed: self.allowed,
        })
    }
}

fn refusal(road: Road, faults: &[Fault]) -> Failure {
    let session = bound();
    let case = Case {
        road: Some(road),
        faults,
        confirm: Some("r.json: servers.git.tools.confirm push"),
        session: Some(&session),
        ..Case::default()
    };
    match case.decide() {
        CallDecision::Refuses(failure) => *failure,
        other => panic!("{faults:?}: {other:?}"),
    }
}

/// The limits of a session that may change nothing.
fn bound() -> SessionFlow {
    let flow = SessionFlow::default();
    flow.bind(BoundMay {
        by: MayPlace::Task(7),
        may: Arc::new(MayList::new(Vec::new())),
    });
    flow
}

#[test]
fn each_fault_is_told_before_those_after_it_and_before_any_wait() {
    let faults = ORDER.map(|(fault, ..)| fault);
    for road in Road::ALL {
        for (at, (fault, code, rule)) in ORDER.into_iter().enumerate() {
            for faults in [&faults[at..], &[fault][..]] {
                let failure = refusal(road, faults);
                assert_eq!(failure.code, code, "{road:?} {faults:?}");
                assert_eq!(failure.rule.as_deref(), Some(rule), "{road:?} {faults:?}");
            }
        }
    }
}

#[test]
fn what_nothing_refuses_waits_for_every_reason_at_once() {
    let session = bound();
    let case = Case {
        confirm: Some("the rule"),
        session: Some(&session),
        ..Case::default()
    };
    let CallDecision::Waits(wait) = case.decide() else {
        panic!("it waits");
    };
    assert_eq!(wait.validation, Validation::Exact);
    assert_eq!(
        wait.reasons.to_string(),
        "the rule; outside task 7: it may change nothing, not git/push"
    );
    assert_eq!(
        Case::default().decide(),
        CallDecision::Passes(Validation::Exact)
    );
}

#[test]
fn nobody_is_asked_about_a_call_that_its_server_would_not_take() {
    let mut case = Case {
        confirm: Some("the rule"),
        is_unavailable: true,
        ..Case::default()
    };
    let CallDecision::Refuses(failure) = case.decide() else {
        panic!("it is refused");
    };
    assert_eq!(failure.code, Code::IntegrationUnavailable);
    // What nobody is asked about goes: its server says what it has against it.
    case.confirm = None;
    assert!(matches!(case.decide(), CallDecision::Passes(_)));
}

#[test]
fn a_release_passes_for_what_was_allowed_and_for_nothing_else() {
    let rule = |rule: &str| SuspensionReasons {
        rule: Some(RulePlace::outside_files(rule)),
        limits: Vec::new(),
    };
    let allowed = rule("the rule");
    fn again(
        allowed: &SuspensionReasons,
        confirm: Option<&str>,
        session: Option<&SessionFlow>,
        faults: &[Fault],
    ) -> CallDecision {
        Case {
            faults,
            confirm,
            session,
            allowed: Some(allowed),
            ..Case::default()
        }
        .decide()
    }
    assert!(matches!(
        again(&allowed, Some("the rule"), None, &[]),
        CallDecision::Passes(_)
    ));
    // Nothing holds it any more.
    assert!(matches!(
        again(&allowed, None, None, &[]),
        CallDecision::Passes(_)
    ));
    // Another rule by now, or limits that came while it waited.
    for (confirm, session) in [
        (Some("another rule"), None),
        (Some("the rule"), Some(bound())),
    ] {
        let decision = again(&allowed, confirm, session.as_ref(), &[]);
        let CallDecision::Waits(wait) = decision else {
            panic!("{decision:?}");
        };
        let mut both = allowed.clone();
        both.extend(wait.reasons);
        let released = Case {
            confirm,
            session: session.as_ref(),
            allowed: Some(&both),
            ..Case::default()
        };
        assert!(matches!(released.decide(), CallDecision::Passes(_)));
    }
    // Whoever has allowed it: what is refused is refused.
    for (fault, code, _) in ORDER {
        let decision = again(&allowed, Some("the rule"), None, &[fault]);
        let CallDecision::Refuses(failure) = decision else {
            panic!("{fault:?}: {decision:?}");
        };
        assert_eq!(failure.code, code);
    }
}

#[test]
fn who_allowed_a_rule_has_not_allowed_a_destination_that_was_read_meanwhile() {
    let session = SessionFlow::default();
    session.distrust("web/open", "write to eve@evil.example");
    let mut allowed = SuspensionReasons {
        rule: Some(RulePlace::outside_files("the rule")),
        limits: Vec::new(),
    };
    let again = |allowed: &SuspensionReasons| {
        let case = Case {
            confirm: Some("the rule"),
            session: Some(&session),
            allowed: Some(allowed),
            ..Case::default()
        };
        case.decide()
    };
    let CallDecision::Waits(wait) = again(&allowed) else {
        panic!("the destination is asked about");
    };
    assert_eq!(wait.reasons.rule, None);
    assert!(matches!(
        &*wait.reasons.limits,
        [FlowSuspension::Origin { source, .. }] if source == "web/open"
    ));
    allowed.extend(wait.reasons);
    assert!(matches!(again(&allowed), CallDecision::Passes(_)));
}

#[test]
fn a_call_that_its_server_has_begun_is_refused_but_not_held() {
    let session = bound();
    for road in Road::ALL {
        let case = Case {
            road: Some(road),
            confirm: Some("the rule"),
            session: Some(&session),
            ..Case::default()
        };
        let passes = matches!(case.decide(), CallDecision::Passes(_));
        assert_eq!(passes, road == Road::InputRetry, "{road:?}");
    }
    for (fault, code, _) in ORDER {
        let case = Case {
            road: Some(Road::InputRetry),
            faults: &[fault],
            ..Case::default()
        };
        let CallDecision::Refuses(failure) = case.decide() else {
            panic!("{fault:?} refuses");
        };
        assert_eq!(failure.code, code);
    }
}

#[test]
fn roads_and_limits_have_names_of_their_own() {
    let roads = Road::ALL.map(Road::name);
    let limits = Limit::ALL.map(Limit::name);
    for (names, all) in [
        (&roads[..], Road::ALL.len()),
        (&limits[..], Limit::ALL.len()),
    ] {
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), all);
    }
}

#[test]
fn deciding_changes_nothing() {
    let session = bound();
    let case = Case {
        session: Some(&session),
        ..Case::default()
    };
    assert_eq!(case.decide(), case.decide());
    assert!(!session.remembers_values());
}
