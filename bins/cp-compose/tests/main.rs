//! `cp-compose` on the command line. A stub of cp-session beside the program provides the session.

mod attach;
mod compose;
mod explain;
mod governed;
mod session;
mod table;
mod template;
