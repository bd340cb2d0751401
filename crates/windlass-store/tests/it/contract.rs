//! The contract, held against both engines.

mod memory {
    use windlass_store::Memory;

    windlass_store::contract_tests!(async { Memory::new() });
}
