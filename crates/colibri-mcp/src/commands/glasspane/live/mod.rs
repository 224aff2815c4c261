//! `colibri-mcp glasspane --open`: the page, served on 127.0.0.1 for as long as the command runs,
//! to the one browser that brings its token.

mod board;
mod connections;
mod feed;
mod front;
mod gate;
mod redirect;
mod reply;
mod serve;

pub(super) use serve::run;
