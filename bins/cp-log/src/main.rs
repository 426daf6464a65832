//! `cp-log`: keep, query and prove a tamper-evident ledger.

fn main() {}
