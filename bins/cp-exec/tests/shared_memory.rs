//! A policy may name directories in memory that programs share, and a run sees those alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::exec::{Exec, POLICY, everyone};

#[test]
fn declared_shared_memory_directory_is_visible_alone() {
    for who in everyone() {
        let directory = || {
            let made = tempfile::tempdir_in("/dev/shm").unwrap();
            fs::set_permissions(made.path(), fs::Permissions::from_mode(0o777)).unwrap();
            made
        };
        let (declared, _neighbour) = (directory(), directory());
        let at = declared.path().to_str().unwrap();
        let paths = format!("[paths]\nread = [\".\", \"{at}\"]\nwrite = [\"{at}\"]\n");
        let exec = Exec::with_policy(who, &format!("{POLICY}\n{paths}"));
        let result = exec.inside(&format!("echo made >{at}/file && ls -A /dev/shm"));
        assert_eq!(result["return_code"], 0, "{result}");
        assert_eq!(fs::read_to_string(declared.path().join("file")).unwrap(), "made\n");
        let name = declared.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(result["stdout"].as_str().unwrap().trim(), name);
    }
}
