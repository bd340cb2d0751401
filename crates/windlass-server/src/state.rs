//! The parts of the server's shared state that know nothing of the modules which work with them. `Api` puts them together.

pub(crate) mod body_budget;
pub(crate) mod clock;
pub(crate) mod contention;
pub(crate) mod crd_progress;
pub(crate) mod custom_versions;
pub(crate) mod pipes;
pub(crate) mod ready_checks;
pub(crate) mod render_cache;
