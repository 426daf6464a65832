//! `cp-shell`: set up a home and look into it.

fn main() -> std::process::ExitCode {
    cp_common::program::main(&cp_shell::PROGRAM, cp_shell::run)
}
