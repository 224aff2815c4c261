//! `colibri_set_cost_mode`.

use super::super::cost_summary::cost;
use super::prelude::*;
use colibri_api::{CostMode, CostModeSet};

/// The arguments of `colibri_set_cost_mode`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetCostMode {
    /// From small to large budgets; default is the operator's.
    mode: CostChoice,
}

impl BuiltinTool for SetCostMode {
    const NAME: &'static str = "colibri_set_cost_mode";
    const TITLE: &'static str = "Set the cost mode";
    const DESCRIPTION: &'static str = "Sets your cost mode: fast, smart or max, from small to large budgets of a day (UTC), or \
    default for the operator's. A result over the mode's limit is stored, and its beginning is returned. Once the day's \
    budget is used up, tools of servers are refused. No mode above the operator's. It persists. Needs the write gate.";
    const ACCESS: Access = Access::Set;
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<CostModeSet>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        (context.set_cost_mode)(self.mode.chosen())?;
        let daemon = (context.look)().daemon;
        let set = CostModeSet {
            mode: daemon.cost_mode,
            budgets: daemon.budgets,
            spending: daemon.spending,
        };
        outcome(&format!("Cost mode is now {}", cost(&daemon)), &set)
    }
}

/// A mode, or the operator's.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum CostChoice {
    Fast,
    Smart,
    Max,
    Default,
}

impl CostChoice {
    /// The mode; `None`: the operator's.
    pub(super) fn chosen(self) -> Option<CostMode> {
        match self {
            CostChoice::Fast => Some(CostMode::Fast),
            CostChoice::Smart => Some(CostMode::Smart),
            CostChoice::Max => Some(CostMode::Max),
            CostChoice::Default => None,
        }
    }
}
