//! Work that takes long, on a thread that serves others.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work that takes long. On the daemon's runtime the other tasks of this thread go on
/// elsewhere meanwhile; a runtime with a single thread, as simulations have, has nowhere else.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::aside;

    #[test]
    fn long_work_leaves_its_thread_to_other_tasks() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (done, wait) = std::sync::mpsc::channel();
        let worked = runtime.block_on(async {
            tokio::spawn(async move {
                // The only worker's next task: it never runs if this one keeps the worker.
                tokio::spawn(async move { done.send("done").unwrap() });
                aside(|| wait.recv_timeout(std::time::Duration::from_secs(60)))
            })
            .await
            .unwrap()
        });
        assert_eq!(worked, Ok("done"));
    }
}
