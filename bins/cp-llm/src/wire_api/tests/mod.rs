//! Laws that hold for every wire API.

mod deltas;
mod schemas;
mod splits;
