//! `cp-mcp`: bridge these programs and the Model Context Protocol.

fn main() -> std::process::ExitCode {
    cp_common::program::main(&cp_mcp::PROGRAM, cp_mcp::run)
}
