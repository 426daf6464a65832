//! Recognition of names, values and random text.

pub(crate) mod line;
pub(crate) mod name;
pub(crate) mod random;
pub(crate) mod scan;
pub(crate) mod value;
