//! Proof: the chain, the tree over it, signed checkpoints, and what lies beside.

pub mod checkpoint;
pub mod fault;
pub mod leaves;
pub mod note;
pub mod opening;
pub mod tree;
pub mod verifier;
pub mod whole;
