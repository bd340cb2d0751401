«header»//! What the operator reconciles: one module for each controller.

%% for module in modules
%% if module == "controller"
#[allow(clippy::module_inception)]
%% endif
pub mod «module»;
%% endfor
%% if modules

%% endif
use windlass::Manager;
use windlass::manager::ManagerError;

/// Adds all controllers to the manager.
pub fn add_to(manager: &mut Manager) -> Result<(), ManagerError> {
%% if not controllers
    let _ = manager; // `windlass create api` adds the first controller
%% endif
%% for path in controllers
«path»
%% endfor
    Ok(())
}
