//! `cp-compose` as a shell user meets it. The session comes from a stand-in for cp-session that lies beside the program.

mod around;
mod attach;
mod compose;
mod explain;
mod governed;
mod memory;
mod project;
mod session;
mod template;
mod tools;
