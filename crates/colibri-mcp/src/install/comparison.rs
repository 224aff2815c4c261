//! A planned server beside the one of its id that is there already.

use std::fs;

use serde_json::Value;

use super::plan::InstallPlan;
use super::scope::InstallScope;
use colibri_mcp::edit::FileFormat;
use colibri_registry::PackageOrigin;

/// The keys of an entry that say what is run or reached, and with what. Other keys are added by
/// people.
const KEYS: [&str; 8] = [
    "command", "args", "cwd", "env", "headers", "ssh", "type", "url",
];

/// True if an entry is the one that a plan makes, with the same secrets.
pub(crate) fn is_same(plan: &InstallPlan, entry: &Value, scope: &InstallScope) -> bool {
    let written = FileFormat::Json.set("", &["entry"], &plan.entry);
    let planned = written.and_then(|text| FileFormat::Json.get(&text, &["entry"]));
    let Ok(Some(planned)) = planned else {
        return false;
    };
    let has_secret = |file: &str, value: &str| {
        fs::read_to_string(scope.secrets.join(file)).is_ok_and(|own| own == value)
    };
    KEYS.iter().all(|key| planned.get(key) == entry.get(key))
        && package(&planned) == package(entry)
        && plan
            .secrets
            .iter()
            .all(|(_, file, value)| has_secret(file, value))
}

/// The package of an entry, in whatever version.
fn package(entry: &Value) -> Option<String> {
    match PackageOrigin::parse(entry.get("from")?.as_str()?)? {
        PackageOrigin::Npm { name, .. } => Some(format!("npm:{name}")),
        PackageOrigin::Pypi { name, .. } => Some(format!("pypi:{name}")),
        PackageOrigin::Bundle { sha256 } => Some(format!("mcpb:{sha256}")),
    }
}
