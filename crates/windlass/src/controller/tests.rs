//! Controllers without a server.
