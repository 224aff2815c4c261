//! Faults of the database, each with its remedy.

/// The reason for which the board cannot be used, and the remedy.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(super) struct BoardFault(String);

impl From<String> for BoardFault {
    fn from(why: String) -> BoardFault {
        BoardFault(why)
    }
}

impl From<&str> for BoardFault {
    fn from(why: &str) -> BoardFault {
        BoardFault(why.to_owned())
    }
}

impl From<tokio_postgres::Error> for BoardFault {
    fn from(error: tokio_postgres::Error) -> BoardFault {
        BoardFault(fault(&error))
    }
}

/// The fault of a connection that is not had.
pub(super) fn pool_fault(error: &deadpool_postgres::PoolError) -> String {
    match error {
        deadpool_postgres::PoolError::Backend(error) => fault(error),
        error => error.to_string(),
    }
}

/// The fault of the database, and the remedy.
pub(super) fn fault(error: &tokio_postgres::Error) -> String {
    let Some(refusal) = error.as_db_error() else {
        let causes = anyhow::Error::msg(chain(error));
        return format!("{causes}: see that the database runs and is reached from here");
    };
    let remedy = match refusal.code().code() {
        "28P01" => "put the right password into the file of passfile",
        "28000" => "let this role in from this host in pg_hba.conf, or name another in the address",
        "3D000" => "make it (createdb), or name another in the address",
        "42501" => "grant the role what it lacks",
        "53300" => "raise max_connections: a daemon takes up to 8",
        "25006" => "it is a standby: name the primary, or add target_session_attrs=read-write",
        "40001" | "40P01" | "55P03" => "somebody else was at it: try again",
        "57P03" => "wait until it has started",
        "57P01" | "57P02" | "57P05" => "it was ended: it is tried again",
        "42P01" | "42703" => "its schema is not whole: restore it from a backup",
        _ => "see the database's log",
    };
    format!("{}; {remedy}", refusal.message())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
