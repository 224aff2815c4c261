//! What lasts for as long as somebody keeps it.

use std::any::Any;

/// What lasts for as long as it is kept, and ends by being dropped: a subscription at a server.
pub type SubscriptionGuard = Box<dyn Any + Send + Sync>;
