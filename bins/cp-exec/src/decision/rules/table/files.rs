//! Programs that find, pack, sort, copy and delete files.

use super::{BuiltIn, Test, rule};
use crate::policy::Verdict::{Confirm, Deny};

#[rustfmt::skip]
pub(super) const RULES: &[BuiltIn] = &[
    rule("find.exec", &["find"], Test::Options(&["-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls"]), Deny,
        "runs a program, or writes a file, for each it finds", &["find . -exec id {} +", "find . -okdir id", "find . -fprint x"], &["find . -name x"]),
    rule("find.delete", &["find"], Test::Options(&["-delete"]), Confirm,
        "deletes what it finds", &["find . -name x -delete"], &["find . -name x"]),
    rule("tar.program", &["tar", "gtar", "bsdtar"],
        Test::Options(&["--checkpoint-action", "-I", "--use-compress-program", "--to-command", "-F", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command"]), Deny,
        "runs a program while it reads or writes the archive",
        &["tar cf a --checkpoint=1 --checkpoint-action=exec=id b", "tar -cIid -f a b", "tar xf a --to-command=id", "tar --use-compress-prog=id -xf a", "tar cIf id a b"], &["tar -czf a.tgz b", "tar xf a"]),
    rule("tar.remote", &["tar", "gtar"], Test::All(&[Test::Value(&["-f", "--file"], &["*:*"]), Test::Not(&Test::Options(&["--force-local"]))]), Deny,
        "an archive on another machine is reached through a program", &["tar xf me@host:a.tar", "tar --file=host:a -x"], &["tar xf a.tar", "tar xf a:b --force-local"]),
    rule("sort.program", &["sort"], Test::Options(&["--compress-program", "-o", "--output"]), Deny,
        "runs a program for its temporary files, or writes a file of any name", &["sort --compress-program=id a", "sort -o b a", "sort --compress-prog id a"], &["sort -u a"]),
    rule("split.filter", &["split"], Test::Options(&["--filter"]), Deny,
        "runs a shell for each piece", &["split --filter=id a"], &["split -l 10 a"]),
    rule("zip.program", &["zip"], Test::Options(&["-T", "--test", "--unzip-command"]), Deny,
        "runs a program to test the archive", &["zip -T -TT id a b", "zip a b --unzip-command id", "zip -qT a b"], &["zip a b"]),
    rule("rg.pre", &["rg"], Test::Options(&["--pre", "--pre-glob", "--hostname-bin", "-z", "--search-zip"]), Deny,
        "runs a program for each file", &["rg --pre id x", "rg --pre=id x"], &["rg x", "rg -n x"]),
    rule("fd.exec", &["fd", "fdfind"], Test::Options(&["-x", "-X", "--exec", "--exec-batch"]), Deny,
        "runs a program for each file", &["fd -x id", "fd --exec id"], &["fd x"]),
    rule("destroy", &["rm", "rmdir", "unlink", "shred", "truncate", "dd", "wipefs", "blkdiscard"], Test::Command, Confirm,
        "deletes or overwrites", &["rm x", "dd if=a of=b", "shred x"], &["ls"]),
    rule("make_file_system", &["mkfs", "mkfs.*", "fdisk", "sfdisk", "parted", "mkswap", "cryptsetup"], Test::Command, Deny,
        "changes disks", &["mkfs.ext4 /dev/sda", "fdisk /dev/sda"], &["ls"]),
    rule("permissions", &["chmod", "chown", "chgrp", "setfacl"], Test::Options(&["-R", "--recursive"]), Confirm,
        "changes permissions of everything below", &["chmod -R 777 .", "chown -vR me ."], &["chmod 644 a"]),
    rule("rsync.program", &["rsync"], Test::Options(&["-e", "--rsh", "--rsync-path", "--daemon"]), Deny,
        "names a program to reach the other side", &["rsync -e id a b:c", "rsync -ave id a b:c", "rsync --rsync-path=id a b"], &["rsync -a a b"]),
    rule("rsync.delete", &["rsync"], Test::Options(&["--delete", "--delete-before", "--delete-after", "--delete-excluded", "--remove-source-files"]), Confirm,
        "deletes what the source does not have", &["rsync -a --delete a b"], &["rsync -a a b"]),
    rule("tar.delete", &["tar", "gtar", "bsdtar"], Test::Options(&["--remove-files", "--unlink-first", "-U", "--recursive-unlink", "--delete"]), Confirm,
        "deletes files, or members of the archive", &["tar cf a --remove-files b", "tar xUf a", "tar --delete -f a b"], &["tar cf a b"]),
    rule("install.program", &["install", "ginstall"], Test::Options(&["--strip-program"]), Deny,
        "runs a program on what it installs", &["install -s --strip-program=./x a b", "install --strip-p ./x -s a b"], &["install -m 644 a b"]),
];
