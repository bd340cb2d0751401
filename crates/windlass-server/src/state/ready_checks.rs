//! The checks that other parts of the process have registered for `/readyz`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

/// A check of another part of the process.
pub(crate) type ReadyCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks that other parts of the process have registered for `/readyz`.
#[derive(Default)]
pub(crate) struct ReadyChecks {
    pub(crate) registered: RwLock<Vec<(String, ReadyCheck)>>,
    /// The reason that was logged last for each check that fails. Everybody may ask as often as they like: the log
    /// only grows when a reason changes.
    logged: Mutex<BTreeMap<String, String>>,
}

impl ReadyChecks {
    /// Registers a check.
    pub(crate) fn add(&self, name: String, check: ReadyCheck) {
        self.registered.write().push((name, check));
    }

    /// Notes the result of a check in the log, if it is news.
    pub(crate) fn log(&self, name: &str, result: &Result<(), String>) {
        let mut logged = self.logged.lock();
        match result {
            Ok(()) => {
                if logged.remove(name).is_some() {
                    tracing::info!(check = name, "health check passes again");
                }
            }
            Err(reason) if logged.get(name) != Some(reason) => {
                tracing::warn!(check = name, %reason, "health check failed");
                logged.insert(name.to_owned(), reason.clone());
            }
            Err(_) => {}
        }
    }
}
