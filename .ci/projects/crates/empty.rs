//! Nothing: cargo fetches the dependencies only.
