//! An embeddable, Kubernetes-compatible API server.
