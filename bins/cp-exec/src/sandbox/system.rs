//! Paths of the machine that every command sees, in the mount view and for Landlock.

use std::path::PathBuf;

use super::plan::Profile;

/// Libraries, and files that programs need to run.
pub(super) const LIBRARIES: [&str; 12] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/share",
    "/usr/include",
    "/usr/local/lib",
    "/usr/local/share",
    "/usr/local/include",
];

/// Configuration without secrets, and the kernel's description of this machine.
pub(super) const SETTINGS: [&str; 40] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/default/locale",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/java",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/machine-id",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/pki",
    "/etc/protocols",
    "/etc/python3",
    "/etc/resolv.conf",
    "/etc/rpc",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/proc",
    "/sys/fs/cgroup",
];

/// The kernel's description of processors and memory.
pub(super) const MACHINE: [&str; 2] = ["/sys/devices/system", "/sys/kernel/mm"];

/// The directories that hold the settings and the kernel's descriptions.
pub(super) const HOLD_SETTINGS: [&str; 3] = ["/etc", "/proc", "/sys"];

/// Programs, in the build profile.
pub(super) const PROGRAMS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store"];

/// The strict profile reads libraries but not programs.
pub(crate) fn trees(profile: Profile) -> &'static [&'static str] {
    match profile {
        Profile::Strict => &LIBRARIES,
        Profile::Build => &PROGRAMS,
    }
}

/// The dynamic loaders of this machine.
pub(super) fn loaders() -> Vec<PathBuf> {
    [
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1",
        "/lib/ld-musl-x86_64.so.1",
        "/lib/ld-musl-aarch64.so.1",
    ]
    .into_iter()
    .map(PathBuf::from)
    .filter(|path| path.exists())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_lie_in_listed_directories() {
        let mut all = SETTINGS.iter().chain(&MACHINE).map(std::path::Path::new);
        assert!(all.all(|path| HOLD_SETTINGS.iter().any(|above| path.starts_with(above))));
    }
}
