//! Records: append, hash chain, seal, prove, verify.
