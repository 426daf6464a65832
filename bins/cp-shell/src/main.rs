//! `cp-shell`: the front door: requests from programs, a session with a person.

fn main() -> std::process::ExitCode {
    cp_common::program::main(&cp_shell::PROGRAM, cp_shell::run)
}
