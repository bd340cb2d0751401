//! Managers that run in an environment.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use windlass::Manager;
use windlass::manager::ManagerError;

use crate::managers::Started;
use crate::{Env, WAIT_TIMEOUT};

/// A manager that runs in an [`Env`]. If it fails, and the test neither [stops](Self::stop) it nor [waits for its
/// end](Self::ended), the test fails.
///
/// ```
/// use windlass_testing::{Env, Options, Running, run};
///
/// run(Options::default().bare(), async |env: Env| {
///     let running: Running = env.run(env.manager().build().expect("a manager"));
///     running.stop().await.expect("stopped");
///     let crashing = env.run(env.manager().build().expect("a manager"));
///     crashing.kill().await; // leases are not released
/// });
/// ```
#[derive(Debug, Clone)]
pub struct Running {
    env: Env,
    id: u64,
}

impl Running {
    /// Stops the manager and waits until it has stopped. Returns the error if the manager has failed before.
    pub async fn stop(&self) -> Result<(), ManagerError> {
        match self.take() {
            Some(started) => started.stop().await,
            None => Ok(()),
        }
    }

    /// Waits until the manager ends by itself, and returns how: for a manager that must fail. To be sure that a
    /// manager fails, do not use [`stop`](Self::stop), since that may stop it before it has failed.
    ///
    /// ```
    /// use windlass::manager::ManagerError;
    /// use windlass_testing::{Env, Options, run};
    ///
    /// run(Options::default().bare(), async |env: Env| {
    ///     let mut manager = env.manager().build().expect("a manager");
    ///     manager.add_task("fail", |_| async { Err("no food left") }).expect("added");
    ///     let error = env.run(manager).ended().await.expect_err("it fails");
    ///     assert!(matches!(error, ManagerError::Task { .. }), "{error}");
    /// });
    /// ```
    ///
    /// # Panics
    /// When that takes more than 30 seconds of the test's time.
    #[track_caller]
    pub fn ended(&self) -> impl Future<Output = Result<(), ManagerError>> {
        let at = std::panic::Location::caller();
        async move {
            let managers = &self.env.inner.managers;
            let ended =
                managers.started.lock().get(&self.id).map(|started| (started.name.clone(), started.ended.clone()));
            let Some((name, ended)) = ended else { return Ok(()) };
            let in_time = tokio::time::timeout(WAIT_TIMEOUT, ended.cancelled()).await.is_ok();
            assert!(in_time, "timed out waiting for the manager {name:?} to end (at {at}){}", self.env.reasons());
            self.stop().await
        }
    }

    /// Ends the manager as a crash would: nothing is finished, no lease is released.
    pub async fn kill(&self) {
        if let Some(started) = self.take() {
            started.task.abort();
            // The error says that it was aborted.
            let _ = started.task.await;
        }
    }

    fn take(&self) -> Option<Started> {
        self.env.inner.managers.started.lock().remove(&self.id)
    }
}

impl Env {
    /// Runs a manager until the test ends, or until it is stopped. A manager that fails makes the test fail,
    /// unless the test [stops](Running::stop) it or [waits for its end](Running::ended).
    ///
    /// This does not wait: see [`run_ready`](Self::run_ready).
    pub fn run(&self, manager: Manager) -> Running {
        let (shutdown, result) = (CancellationToken::new(), Arc::new(Mutex::new(None)));
        let name = manager.client().field_manager().to_owned();
        let ended = CancellationToken::new();
        let (until, end, guard) = (shutdown.clone(), Arc::clone(&result), ended.clone().drop_guard());
        let task = tokio::spawn(async move {
            let _ended = guard;
            let result = manager.run_until(until).await;
            *end.lock() = Some(result);
        });
        let managers = &self.inner.managers;
        let id = managers.next.fetch_add(1, Ordering::Relaxed);
        managers.started.lock().insert(id, Started { name, shutdown, task, result, ended });
        Running { env: self.clone(), id }
    }

    /// [Runs](Self::run) a manager, and waits until it is ready: its webhooks are registered and served, and its caches
    /// are complete.
    ///
    /// # Panics
    /// When the manager ends before it is ready, with its error, or is not ready after 30 seconds of the test's time.
    #[track_caller]
    pub fn run_ready(&self, manager: Manager) -> impl Future<Output = Running> {
        let at = std::panic::Location::caller();
        async move {
            let (name, ready) = (manager.client().field_manager().to_owned(), manager.ready());
            let running = self.run(manager);
            match tokio::time::timeout(WAIT_TIMEOUT, ready).await.ok() {
                Some(true) => running,
                Some(false) => match running.ended().await {
                    Err(error) => panic!("the manager {name:?} failed before it was ready (at {at}): {error}"),
                    Ok(()) => panic!("the manager {name:?} ended before it was ready (at {at})"),
                },
                None => panic!("timed out waiting for the manager {name:?} to be ready (at {at}){}", self.reasons()),
            }
        }
    }
}
