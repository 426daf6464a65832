//! Which tools may be called.

/// What may be called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    /// By these names; none: all.
    pub(crate) names: Vec<String>,
    /// Only what changes nothing.
    pub(crate) read_only: bool,
}

impl Allowed {
    /// Whether a name may be called.
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|allowed| allowed == name)
    }
}
