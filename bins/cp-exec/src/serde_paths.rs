//! Paths with any bytes in JSON, for `#[serde(with)]`.

/// Serializes a path with any bytes as JSON: each byte becomes a character.
pub(crate) mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn text(path: &Path) -> String {
        path.as_os_str().as_bytes().iter().map(|byte| char::from(*byte)).collect()
    }

    pub(super) fn path(text: &str) -> PathBuf {
        OsString::from_vec(text.chars().filter_map(|byte| u8::try_from(byte).ok()).collect()).into()
    }

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(path))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(path(&String::deserialize(deserializer)?))
    }
}

/// Serializes several paths in the same way.
pub(crate) mod any_bytes {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::path_bytes::{path, text};

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| text(path)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<String>::deserialize(deserializer)?.iter().map(|text| path(text)).collect())
    }
}
