//! The names that every policy hides, allows, refuses or sets, as `built_in.toml` lists and explains them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::data::parsed;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BuiltIn {
    pub secrets: Vec<String>,
    pub system_secrets: Vec<String>,
    pub toolchains: Vec<String>,
    pub allowed_variables: Vec<String>,
    pub denied_variables: Vec<String>,
    pub certificates: Vec<String>,
    pub variables: BTreeMap<String, String>,
    pub git: BTreeMap<String, String>,
}

pub(crate) fn built_in() -> &'static BuiltIn {
    static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(|| parsed(include_str!("built_in.toml")));
    &BUILT_IN
}
