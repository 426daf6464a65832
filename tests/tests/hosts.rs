//! The coding agents that people have, as they are installed, under a scripted model: what becomes of a tool call under
//! the hook, and what each of them does when a hook fails.

mod agent;
mod called;
mod contained;
mod day;
mod examined;
mod failures;
mod filtered;
mod governed;
mod model;
mod outer;
mod routes;
mod screen;
mod trust;
