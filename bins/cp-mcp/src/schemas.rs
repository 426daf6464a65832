//! The checked-in schemas are those of the types. `UPDATE=1` rewrites them.
