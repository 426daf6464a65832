//! `cp-log`: keep, query and prove a tamper-evident ledger.

fn main() -> std::process::ExitCode {
    cp_common::program::main(&cp_log::PROGRAM, cp_log::run)
}
