//! `cp-shell`: interactive shell, and JSON requests on standard input.

fn main() -> std::process::ExitCode {
    cp_common::program::main(&cp_shell::PROGRAM, cp_shell::run)
}
