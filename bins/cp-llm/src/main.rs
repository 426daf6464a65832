//! `cp-llm`: send a prompt to a model, get a message.

fn main() -> std::process::ExitCode {
    cp_common::program::main(&cp_llm::PROGRAM, cp_llm::run)
}
