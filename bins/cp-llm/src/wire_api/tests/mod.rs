//! Laws that hold for every wire API.

mod schemas;
mod splits;
