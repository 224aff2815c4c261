//! Guards that last for as long as somebody holds them.

use std::any::Any;

/// A guard that ends something by being dropped: a subscription at a server.
pub type SubscriptionGuard = Box<dyn Any + Send + Sync>;
