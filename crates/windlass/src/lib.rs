//! Write Kubernetes operators: informers, cache, work queue, controllers, manager, events.
