//! Requests of servers to the clients of their calls, in both eras: a legacy server's own requests,
//! a modern server's input requests, and each of them translated for a client of the other era.

mod era_translation;
pub(super) mod exclusive_slots;
mod input_requests;
pub(super) mod open_elicitations;
mod session_requests;
pub(super) mod suspended_call;
pub(super) mod suspension;
