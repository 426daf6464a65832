//! Proof: the chain, the tree over it, signed checkpoints.

pub mod checkpoint;
pub mod dialect;
pub mod leaves;
pub mod note;
pub mod tree;
pub mod verifier;
