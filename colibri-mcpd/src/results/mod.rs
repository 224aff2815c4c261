//! Results over a limit, kept on the disk for who called, and read in pieces.
//!
//! [`Results::keep`] writes one and gives its handle; [`Results::read`] reads on under it, for the
//! same [`ResultOwner`] alone. Who owns a result is a part of the key by which it is found: for
//! anybody else there is nothing to be found, as for a handle that was never given. Both wait for
//! the disk, so they are for threads that may; [`Results::turn`] sees to it that no user has more
//! than one of those.

mod blocks;
mod files;
mod index;
mod pieces;
mod result_store;
mod stored_result;
mod text;

pub(crate) use blocks::MOST_COUNTED;
pub(crate) use blocks::media_spans;
pub use blocks::{Media, MediaBytes, media};
pub use pieces::{PieceRequest, PieceSelector, ResultPiece, beginning};
pub use result_store::Results;
pub use stored_result::{NotRead, NotStored, ResultLimits, ResultOwner, StoredResult};
