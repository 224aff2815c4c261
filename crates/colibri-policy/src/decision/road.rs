//! The roads by which calls come, and the limits that they meet.
//!
//! Whatever makes a call names its road. `docs/roads.md` is the table of both: a test of the
//! sources prints it, and each of its cells names the test that shows it.

/// The road by which a call comes to the decision about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Road {
    /// JSON-RPC lines on the daemon's socket.
    Lines,
    /// A request in a session over Streamable HTTP (2025-03-26 to 2025-11-25).
    HttpSession,
    /// A request over Streamable HTTP that stands alone (2026-07-28).
    HttpRequest,
    /// JSON-RPC lines on an agent socket.
    AgentSocket,
    /// A request of a script that `colibri_run_script` runs.
    Script,
    /// A call that the daemon makes for a schedule.
    Schedule,
    /// A call that the daemon makes for a summary of tools.
    Summary,
    /// The tool that `colibri_call_tool` names.
    CallTool,
    /// The tool that `colibri_external_mcp_call_tool` names.
    ExternalCallTool,
    /// `prompts/get`.
    Prompt,
    /// `resources/read`, `resources/subscribe` and `resources/unsubscribe`, and the files of skills.
    Resource,
    /// `completion/complete`.
    Completion,
    /// A method beyond MCP that an entry lists (`methods`).
    EntryMethod,
    /// `subscriptions/listen`.
    Subscription,
    /// `tasks/get`, `tasks/update` and `tasks/cancel`: about a task of a server.
    ServerTask,
    /// A call whose server was found after it had entered.
    Redirect,
    /// A call that a person has allowed after it had waited.
    Approval,
    /// The retry of a call that was allowed, and whose server then asked for input
    /// (`input_required`).
    InputRetry,
}

impl Road {
    /// All roads, in the order of the table.
    pub const ALL: [Road; 18] = [
        Road::Lines,
        Road::HttpSession,
        Road::HttpRequest,
        Road::AgentSocket,
        Road::Script,
        Road::Schedule,
        Road::Summary,
        Road::CallTool,
        Road::ExternalCallTool,
        Road::Prompt,
        Road::Resource,
        Road::Completion,
        Road::EntryMethod,
        Road::Subscription,
        Road::ServerTask,
        Road::Redirect,
        Road::Approval,
        Road::InputRetry,
    ];

    /// The name of the road in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Road::Lines => "lines",
            Road::HttpSession => "HTTP session",
            Road::HttpRequest => "HTTP request",
            Road::AgentSocket => "agent socket",
            Road::Script => "script",
            Road::Schedule => "schedule",
            Road::Summary => "summary",
            Road::CallTool => "colibri_call_tool",
            Road::ExternalCallTool => "colibri_external_mcp_call_tool",
            Road::Prompt => "prompts",
            Road::Resource => "resources",
            Road::Completion => "completion",
            Road::EntryMethod => "methods of an entry",
            Road::Subscription => "subscriptions/listen",
            Road::ServerTask => "tasks of a server",
            Road::Redirect => "redirect",
            Road::Approval => "released approval",
            Road::InputRetry => "retry with input",
        }
    }

    /// True if a call on this road is not held for a person any more: its server has begun it.
    pub(super) const fn is_begun(self) -> bool {
        matches!(self, Road::InputRetry)
    }
}

/// A limit that can refuse a call or hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The lease of this host on the task of an agent.
    Lease,
    /// The bytes of answers of a user or an agent.
    Budget,
    /// The gates of the daemon, of the user and of the connection.
    Gate,
    /// `servers` and `deny` of `clients.json`.
    Rights,
    /// `tools` of an agent's entry: `allow`, `deny` and `confirm`.
    AgentTools,
    /// A rule of the server's entry that denies.
    RuleDeny,
    /// A rule of the server's entry that asks for a person's yes.
    RuleConfirm,
    /// A label of the entry that fits nothing.
    Label,
    /// `params.task`.
    TaskParameter,
    /// The pin of the definition.
    Pin,
    /// The contract of the entry.
    Contract,
    /// The tool's own `inputSchema`.
    Schema,
    /// The list `may` of a claimed task.
    TaskMay,
    /// The list `may` of an agent's entry.
    AgentMay,
    /// The origin of a destination.
    Origin,
    /// The account that a server's name alone means.
    Account,
    /// The quota of a user: calls in flight, bytes of the trail.
    Quota,
    /// The breaker of a server that fails.
    Breaker,
}

impl Limit {
    /// All limits, in the order of the table.
    pub const ALL: [Limit; 18] = [
        Limit::Lease,
        Limit::Budget,
        Limit::Gate,
        Limit::Rights,
        Limit::AgentTools,
        Limit::RuleDeny,
        Limit::RuleConfirm,
        Limit::Label,
        Limit::TaskParameter,
        Limit::Pin,
        Limit::Contract,
        Limit::Schema,
        Limit::TaskMay,
        Limit::AgentMay,
        Limit::Origin,
        Limit::Account,
        Limit::Quota,
        Limit::Breaker,
    ];

    /// The name of the limit in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Limit::Lease => "lease",
            Limit::Budget => "budget",
            Limit::Gate => "gate",
            Limit::Rights => "rights",
            Limit::AgentTools => "agent's tools",
            Limit::RuleDeny => "rule: deny",
            Limit::RuleConfirm => "rule: confirm",
            Limit::Label => "label",
            Limit::TaskParameter => "params.task",
            Limit::Pin => "pin",
            Limit::Contract => "contract",
            Limit::Schema => "schema",
            Limit::TaskMay => "task's may",
            Limit::AgentMay => "agent's may",
            Limit::Origin => "origin",
            Limit::Account => "account",
            Limit::Quota => "quota",
            Limit::Breaker => "breaker",
        }
    }
}
