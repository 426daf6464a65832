//! `cp-compose`: assembles a prompt and accounts for every part of it.

fn main() -> std::process::ExitCode {
    cp_common::program::main(&cp_compose::PROGRAM, cp_compose::run)
}
