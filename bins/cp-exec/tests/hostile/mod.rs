//! The command itself as the attacker: a script that a model wrote, run again and again under one policy.
//!
//! Each probe of `data/hostile/` names the layers of which any one is enough to refuse it; `matrix` takes the layers
//! away in turn.

mod bench;
pub(crate) mod chance;
mod contained;
mod manual;
mod matrix;
mod repository;
mod sequences;
mod spellings;
mod tokenizer;
