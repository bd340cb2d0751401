//! The contract, held against both engines.

mod memory {
    use windlass_store::Memory;

    windlass_store::contract_tests!(async { ((), Memory::new()) });
}

mod durable {
    use tempfile::TempDir;
    use windlass_store::{Durable, DurableOptions};

    fn fresh() -> (TempDir, Durable) {
        let dir = TempDir::new().unwrap();
        let (store, _) = Durable::open(dir.path(), DurableOptions::default()).unwrap();
        (dir, store)
    }

    windlass_store::contract_tests!(async { fresh() });
}
