//! The five stages every call passes: enter, validate, dispatch, exit, record.
