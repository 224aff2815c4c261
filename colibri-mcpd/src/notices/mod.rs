//! Notices: told to the log, to who watches, and to a webhook. Nobody waits for any of them.

mod told;
mod webhook;

pub use told::{Notices, name};
pub use webhook::{Webhook, WebhookSettings};
