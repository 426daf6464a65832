//! `cp-exec`: run a command under policy, sandboxed, on the record.

fn main() -> std::process::ExitCode {
    // The helper must start before anything else makes a thread or a handler.
    cp_exec::sandbox::enter().unwrap_or_else(|| {
        if cp_exec::sandbox::is_inside() {
            cp_common::program::without_home();
        }
        cp_common::program::main(&cp_exec::PROGRAM, cp_exec::run)
    })
}
