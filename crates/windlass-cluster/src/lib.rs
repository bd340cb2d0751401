//! The embedded cluster: API server, built-in controllers and nodes in one process.
