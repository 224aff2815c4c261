//! The board on PostgreSQL.

use colibri_tests::Postgres;
use nix::sys::signal::Signal;

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn a_database_outlives_the_servers_sudden_end_and_is_gone_with_the_test() {
    let mut postgres = Postgres::new();
    let place = postgres.socket().to_owned();
    postgres.database("board", "alice");
    postgres.sql("board", "CREATE TABLE t (a INT); INSERT INTO t VALUES (7)");
    assert_eq!(postgres.sql("board", "SHOW fsync"), ["on"]);
    assert!(
        postgres
            .try_sql("board", "SELECT * FROM u")
            .unwrap_err()
            .contains("does not exist")
    );
    postgres.signal(Signal::SIGKILL);
    assert!(postgres.try_sql("board", "SELECT a FROM t").is_err());
    postgres.start();
    assert_eq!(postgres.sql("board", "SELECT a FROM t"), ["7"]);
    drop(postgres);
    assert!(!place.exists());
}
