//! Trusted files, which no other user can replace or write, and the accounts of users.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cp_common::{Error, Result};

use crate::refusal::refuse;

/// True if users other than the owner can write to a file or directory.
pub(crate) fn others_write(meta: &fs::Metadata) -> bool {
    // A group whose id is the owner's uid is the private group of the owner.
    meta.mode() & 0o002 != 0 || (meta.mode() & 0o020 != 0 && meta.gid() != 0 && meta.gid() != meta.uid())
}

/// Refuses a directory of programs that users other than root and `owner` can write to, because they could replace
/// programs.
pub(crate) fn check_directory(directory: &Path, owner: u32) -> Result<()> {
    const STICKY: u32 = 0o1000;
    for above in directory.ancestors() {
        let meta = fs::metadata(above).map_err(|e| Error::io("cannot read the attributes", e).in_file(above))?;
        let trusted = is_root(meta.uid()) || meta.uid() == owner;
        // A sticky directory above it is safe, because other users can add entries but not replace them.
        let shared = above != directory && meta.mode() & STICKY != 0;
        if !trusted || (others_write(&meta) && !shared) {
            return Err(refuse("path_unsafe", format!("other users can write to {}", above.display())).hint(
                "the owner of the directory can take the permission away (chmod go-w), and the owner of the policy the directory from exec.path",
            ));
        }
    }
    Ok(())
}

/// True if files with this uid are those of root in this user namespace, which is read once.
fn is_root(uid: u32) -> bool {
    static UNMAPPED: OnceLock<Option<u32>> = OnceLock::new();
    let unmapped = UNMAPPED.get_or_init(|| {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let nobody = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        nobody.trim().parse().ok().filter(|_| leaves_out_root(&map))
    });
    uid == 0 || *unmapped == Some(uid)
}

/// True for a user namespace that maps only one other user, as `unshare -Ur` makes it, or no root: files of root have
/// the overflow uid there.
fn leaves_out_root(map: &str) -> bool {
    let lines = || map.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let maps_root = lines().any(|line| line.first() == Some(&"0"));
    !map.is_empty() && (!maps_root || lines().all(|line| line[1..] != ["0", "1"] && line.last() == Some(&"1")))
}

/// The name of a user, or the uid if the user is not listed.
pub(crate) fn name_of(uid: u32) -> String {
    field(uid, 0).unwrap_or_else(|| uid.to_string())
}

/// The home directory of a user, or `$HOME` if the user is not listed.
pub(crate) fn home_of(uid: u32) -> PathBuf {
    field(uid, 5)
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(PathBuf::from))
        .unwrap_or_else(|| "/".into())
}

fn field(uid: u32, index: usize) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uid = uid.to_string();
    let entry = users.lines().find(|line| line.split(':').nth(2) == Some(&uid))?;
    entry.split(':').nth(index).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::leaves_out_root;

    #[test]
    fn root_is_unmapped_where_only_other_users_are_mapped() {
        for (map, expected) in [
            ("0 1000 1\n", true),
            ("1000 1000 1\n", true),
            ("1000 0 1\n", true),
            ("0 0 1\n", false),
            ("0 0 4294967295\n", false),
            ("0 100000 65536\n", false),
            ("0 1000 1\n1 100000 65536\n", false),
            ("", false),
        ] {
            assert_eq!(leaves_out_root(map), expected, "{map}");
        }
    }
}
