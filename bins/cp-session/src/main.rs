//! `cp-session`: keep conversations as ledgers.

fn main() -> std::process::ExitCode {
    cp_common::program::main(&cp_session::PROGRAM, cp_session::run)
}
