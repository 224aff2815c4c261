//! Notices: told to the log, to who watches, and to a webhook. Nobody waits for any of them.

mod notifier;
mod webhook;

pub use notifier::{Notices, name};
pub use webhook::{Webhook, WebhookSettings};
