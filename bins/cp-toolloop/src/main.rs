//! `cp-toolloop`: let a model use tools until it is done.
fn main() -> std::process::ExitCode {
    cp_common::program::main(&cp_toolloop::PROGRAM, cp_toolloop::run)
}
