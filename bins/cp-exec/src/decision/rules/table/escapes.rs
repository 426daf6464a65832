//! Programs with a way out to a shell, and such that no sandbox is for.

use super::{BuiltIn, Test, rule};
use crate::policy::Verdict::{Confirm, Deny};

#[rustfmt::skip]
pub(super) const RULES: &[BuiltIn] = &[
    rule("editor", &["ed", "ex", "vi", "vim", "nvim", "view", "vimdiff", "emacs", "nano", "pico", "joe", "mg", "red"], Test::Command, Deny,
        "an editor waits for input, and can start a shell", &["vim x", "ed x", "nano x"], &["sed -n 1p x"]),
    rule("pager", &["less", "more", "most", "pg"], Test::Command, Deny,
        "a pager can start a shell", &["less x"], &["head x"]),
    rule("man.pager", &["man"], Test::Options(&["-P", "--pager", "-H", "--html", "-p", "--preprocessor", "-C", "--config-file"]), Deny,
        "names a program to show the page", &["man -P id ls", "man --pager=id ls", "man -Hid ls"], &["man ls"]),
    rule("debugger", &["gdb", "lldb", "strace", "ltrace", "perf", "bpftrace", "rr", "valgrind"], Test::Command, Deny,
        "controls another program", &["gdb x", "strace id"], &["ls"]),
    rule("terminal", &["script", "screen", "tmux", "watch", "dtach", "expect", "unbuffer", "parallel", "entr"], Test::Command, Deny,
        "runs what it is given, on a terminal or repeatedly", &["script -c id", "watch id", "parallel id ::: a", "tmux new id"], &["ls"]),
    rule("later", &["crontab", "batch", "atq", "systemd-run", "launchctl", "schtasks"], Test::Command, Deny,
        "runs something later, outside the sandbox", &["crontab x"], &["ls"]),
    rule("database.drop", &["psql", "mysql", "mariadb", "sqlite3", "mongosh", "redis-cli"], Test::Words(&["*[Dd][Rr][Oo][Pp] *", "*DROP *", "*drop *", "*TRUNCATE*", "*truncate *", "*FLUSHALL*", "*flushall*"]), Confirm,
        "deletes data", &["psql -c 'DROP TABLE x'", "sqlite3 a 'drop table x'", "redis-cli FLUSHALL"], &["psql -c 'select 1'"]),
    rule("psql.shell", &["psql"], Test::Words(&["*\\!*", "*PROGRAM*", "*program '*", "*\\o |*", "*\\g |*"]), Deny,
        "runs a program", &["psql -c '\\! id'", "psql -c \"copy x from PROGRAM 'id'\""], &["psql -c 'select 1'"]),
    rule("openssl.engine", &["openssl"], Test::Options(&["-engine", "-provider-path", "-provider"]), Deny,
        "loads code", &["openssl req -engine ./x.so"], &["openssl version"]),
    rule("loader", &["ld.so", "ld-linux*", "ld-musl*", "ld-*.so*"], Test::Command, Deny,
        "runs any file, also one that is not executable", &["ld-linux-x86-64.so.2 /bin/id", "ld.so x"], &["ld x"]),
    rule("power", &["shutdown", "reboot", "halt", "poweroff", "init", "telinit"], Test::Command, Deny,
        "stops the machine", &["reboot", "shutdown now"], &["ls"]),
    rule("kill_others", &["killall", "pkill", "skill", "fuser"], Test::Command, Confirm,
        "ends processes by name", &["killall x", "pkill -f x"], &["kill 1"]),
    rule("launcher", &["setarch", "linux32", "linux64", "i386", "x86_64", "uname26", "numactl", "prlimit", "catchsegv", "fakeroot", "fakechroot", "eatmydata", "xvfb-run", "dbus-run-session",
            "dbus-launch", "faketime", "systemd-inhibit", "start-stop-daemon", "run-parts", "cgexec", "cpulimit", "chpst", "softlimit", "envdir", "envuidgid", "setuidgid", "daemonize", "dumb-init",
            "tini", "execlineb", "s6-*", "proot", "firejail", "torsocks", "proxychains*", "chronic", "sem", "runcon", "uclampset", "ssh-agent", "nsjail", "rlwrap"], Test::Command, Deny,
        "runs what it is given, by rules of its own", &["setarch -R id", "prlimit --nofile=5 id", "xvfb-run id"], &["nice ls"]),
    rule("launcher.run", &["rustup", "direnv", "mise", "asdf", "bundle", "bundler", "poetry", "pipenv", "uv", "hatch", "pdm", "conda", "mamba", "micromamba", "nix", "nix-shell", "pixi", "volta",
            "pyenv", "rbenv", "nodenv", "corepack"], Test::First(&["run", "exec", "x", "shell", "develop", "tool"]), Deny,
        "runs any program", &["rustup run stable id", "uv run id", "bundle exec id", "poetry -C x run id"], &["rustup show", "uv sync"]),
];
