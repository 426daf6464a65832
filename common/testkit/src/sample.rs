//! How much a test tries: a sample of each class, or everything where `CP_LONG` is set.

/// True if the tests try everything.
pub fn is_long() -> bool {
    std::env::var_os("CP_LONG").is_some()
}

/// Returns `few`, or `many` if the tests try everything.
pub fn times<T>(few: T, many: T) -> T {
    if is_long() { many } else { few }
}

/// True for one case in `part`, or for each case if the tests try everything. `offset` chooses which, so that two tests
/// over the same cases try different ones.
pub fn is_sampled(index: usize, offset: usize, part: usize) -> bool {
    is_long() || (index + offset).is_multiple_of(part)
}
