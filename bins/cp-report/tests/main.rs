//! `cp-report` as a shell user meets it.

mod report;
