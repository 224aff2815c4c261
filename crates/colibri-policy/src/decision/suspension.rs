//! The reasons for which a call waits for a person.

use crate::place::RulePlace;
use crate::session_flow::FlowSuspension;

/// The reasons for which a person has to allow a call, or has allowed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuspensionReasons {
    /// The rule of the entry, or of the agent's.
    pub rule: Option<RulePlace>,
    /// The limits of its session.
    pub limits: Vec<FlowSuspension>,
}

impl SuspensionReasons {
    pub(super) fn is_empty(&self) -> bool {
        self.rule.is_none() && self.limits.is_empty()
    }

    /// Adds what a person was asked afterwards.
    pub fn extend(&mut self, other: SuspensionReasons) {
        self.rule = other.rule.or(self.rule.take());
        self.limits.extend(other.limits);
    }
}

/// The reasons, as the person gets to read them.
impl std::fmt::Display for SuspensionReasons {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut separator = "";
        if let Some(rule) = &self.rule {
            write!(f, "{rule}")?;
            separator = "; ";
        }
        for limit in &self.limits {
            write!(f, "{separator}{limit}")?;
            separator = "; ";
        }
        Ok(())
    }
}
