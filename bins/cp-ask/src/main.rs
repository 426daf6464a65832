//! `cp-ask`: sends a text to a model and prints the answer.

fn main() -> std::process::ExitCode {
    cp_common::program::main_for_person("cp-ask", cp_ask::run)
}
