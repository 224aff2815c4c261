//! Flags, `COLIBRI_*` environment, defaults: resolved once, at start.
