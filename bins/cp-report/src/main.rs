//! `cp-report`: make a page that shows what happened and proves itself.

fn main() -> std::process::ExitCode {
    cp_common::program::main(&cp_report::PROGRAM, cp_report::run)
}
