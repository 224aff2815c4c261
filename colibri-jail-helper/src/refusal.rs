//! Refusals of the helper: one type, one exit code, one line.

use std::fmt;

/// The helper's own exit codes (sysexits(3)). They count only where `helper: started` was not
/// printed; after that line the exit code is the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperExit {
    /// 64: the command line is not one of the helper's.
    Usage = 64,
    /// 69: a limit of the policy is reached, on what runs or on starts; who waits has a turn.
    Limit = 69,
    /// 71: the system would not (a system call failed, the helper is not root).
    System = 71,
    /// 75: not now (a jail that is not running, a registry that changed).
    TryLater = 75,
    /// 77: the policy, or the helper's own rules, do not allow it.
    Policy = 77,
    /// 78: the policy, the registry, a secret or a directory is not as it must be, or asks for what
    /// this system does not have.
    File = 78,
}

/// A refusal: exit code, the rule's name, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperRefusal {
    /// The exit code.
    pub exit: HelperExit,
    /// The rule that refused, a short fixed word for logs and for callers.
    pub rule: &'static str,
    /// The fault, its place and the remedy. Never a value from a file.
    pub detail: String,
}

impl HelperRefusal {
    /// A refusal in full.
    pub fn new(exit: HelperExit, rule: &'static str, detail: impl Into<String>) -> Self {
        Self {
            exit,
            rule,
            detail: detail.into(),
        }
    }

    /// A refusal by policy.
    pub fn policy(rule: &'static str, detail: impl Into<String>) -> Self {
        Self::new(HelperExit::Policy, rule, detail)
    }

    /// A file or directory that is not as it must be.
    pub fn file(rule: &'static str, detail: impl Into<String>) -> Self {
        Self::new(HelperExit::File, rule, detail)
    }

    /// A system call that failed: what was tried, and the error.
    pub fn system(rule: &'static str, tried: &str, error: impl fmt::Display) -> Self {
        Self::new(HelperExit::System, rule, format!("{tried}: {error}"))
    }

    /// The line for the one who asked. What policy refuses is told to the caller by its rule alone:
    /// the policy file is root's, and a compromised daemon shall not read it by asking. Root gets
    /// the detail.
    pub fn line(&self, to_root: bool) -> String {
        if self.exit == HelperExit::Policy && !to_root {
            format!("refused by rule '{}'", self.rule)
        } else {
            format!("refused by rule '{}': {}", self.rule, self.detail)
        }
    }
}

impl fmt::Display for HelperRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_learns_the_rule_and_root_the_detail() {
        let refusal = HelperRefusal::policy("ephemeral", "/secret/place is not listed");
        assert_eq!(refusal.line(false), "refused by rule 'ephemeral'");
        assert_eq!(
            refusal.line(true),
            "refused by rule 'ephemeral': /secret/place is not listed"
        );
        let refusal = HelperRefusal::file("registry", "line 3, column 4: unknown key");
        assert!(refusal.line(false).contains("line 3"));
    }
}
