//! `cp-report` as a shell user meets it, and its pages as a browser shows them.

mod browser;
mod made;
mod report;
