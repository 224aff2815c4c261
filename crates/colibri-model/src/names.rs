//! Names of models, and what they say.

use colibri_text::{brief, label};

use super::api::fits;
use super::refusal::needs;
use crate::rules::{ModelAllow, ModelPermissions};

/// The most bytes of a model's name in the ledger and the trail.
const MAX_LABEL: usize = 128;

/// The name of a model as a label.
pub(super) fn model_label(name: &str) -> String {
    label(name.strip_prefix("models/").unwrap_or(name), MAX_LABEL)
}

/// True if the entry lets an agent use a model of this name.
///
/// # Errors
/// Why it does not, and what to set.
pub(super) fn judge_model(name: &str, permits: &ModelPermissions) -> Result<(), String> {
    /// Parts of the names of models that search the web or run code without being asked to.
    const SEARCHING: [&str; 6] = [
        ":online",
        "search",
        "deepresearch",
        "deep-research",
        "sonar",
        "compound",
    ];
    let name = name.strip_prefix("models/").unwrap_or(name);
    if permits.models.iter().any(|model| model == name) {
        return Ok(());
    }
    if !permits.models.is_empty() && !permits.models.iter().any(|pattern| fits(pattern, name)) {
        return Err(format!(
            "the agent's entry does not have the model {} (\"models\" of its \"model\")",
            brief(name, 64)
        ));
    }
    let folded = fold(name);
    if SEARCHING.iter().any(|part| folded.contains(part))
        && !permits.allow.contains(&ModelAllow::WebSearch)
    {
        return Err(format!(
            "{}, or has not its whole name in \"models\"",
            needs(
                &[ModelAllow::WebSearch],
                "this model searches the web by itself"
            )
        ));
    }
    Ok(())
}

/// A key or name as the loosest reader takes it.
fn fold(name: &str) -> String {
    match name.is_ascii() {
        true => name.to_ascii_lowercase(),
        false => colibri_wire::keys::fold(name),
    }
}
