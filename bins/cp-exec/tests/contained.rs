//! The sandbox contains commands even if all checks are passed. Each denial has a control that shows the same action
//! succeeding.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use cp_testkit::required;

use crate::exec::{Exec, POLICY, SCRIPT, Who, details, everyone, policy_with};
use serde_json::Value;

/// Runs Python inside; the script prints `control` lines and `denied` or `ESCAPED` lines.
fn python(exec: &Exec, script: &str) -> Value {
    exec.write("probe.py", &format!("{PRELUDE}\n{script}"));
    let (answer, _) = exec.ask(&["--timeout", "20", "--", "python3", "-c", SCRIPT, "probe.py"]);
    let result = details(&answer);
    assert!(result["argv"].is_array(), "it did not run: {answer}");
    result.clone()
}

const PRELUDE: &str = r#"
import os, sys, errno, socket
def denied(name, f):
    try:
        f()
        print("ESCAPED", name)
    except (OSError, PermissionError, MemoryError) as e:
        print("denied", name, getattr(e, "errno", None))
def control(name, f):
    try:
        f()
        print("control", name)
    except BaseException as e:
        print("BROKEN", name, e)
"#;

/// Nothing escaped, no control is broken, and every name given was looked at.
fn assert_contained(who: Who, result: &Value, denied: &str, controls: &str) {
    let out = result["stdout"].as_str().unwrap();
    let shown = format!("{who:?}: {out}{}", result["stderr"].as_str().unwrap());
    assert!(!out.contains("ESCAPED") && !out.contains("BROKEN"), "{shown}");
    for name in denied.split_whitespace() {
        assert!(out.lines().any(|line| line.starts_with(&format!("denied {name} "))), "{name}: {shown}");
    }
    for name in controls.split_whitespace() {
        assert!(out.lines().any(|line| line == format!("control {name}")), "{name}: {shown}");
    }
}

fn sha256(text: &[u8]) -> String {
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(text).iter().fold(String::new(), |all, byte| all + &format!("{byte:02x}"));
    format!("sha256:{hash}")
}

#[test]
fn sockets_follow_the_network_and_the_flags_of_the_run() {
    cp_testkit::needs!("python3");
    let families = r#"
ATTEMPT("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
ATTEMPT("tcp", lambda: socket.create_server(("127.0.0.1", 0)))
ATTEMPT("udp6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
control("unix", lambda: socket.socketpair())
denied("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
denied("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
denied("alg", lambda: socket.socket(38, 5))
"#;
    let (inet, other) = ("udp tcp udp6", "vsock packet alg");
    let strict = policy_with("profile = \"strict\"");
    for who in everyone() {
        for (policy, option) in [(POLICY, None), (POLICY, Some("--read-only")), (&strict, None)] {
            let is_open = policy == POLICY && option.is_none();
            let exec = Exec::with_policy(who, policy);
            let script = families.replace("ATTEMPT", if is_open { "control" } else { "denied" });
            exec.write("probe.py", &format!("{PRELUDE}\n{script}"));
            let arguments: Vec<&str> = option.into_iter().chain(["--", "python3", "-c", SCRIPT, "probe.py"]).collect();
            let (answer, _) = exec.ask(&arguments);
            if is_open {
                assert_contained(who, &answer["data"], other, &format!("{inet} unix"));
            } else {
                assert_contained(who, &answer["data"], &format!("{inet} {other}"), "unix");
            }
        }
    }
}

#[test]
fn network_none_is_not_a_value() {
    let exec = Exec::with_policy(Who::Me, &policy_with("network = \"none\""));
    let (answer, status) = exec.ask(&["--", "true"]);
    assert_eq!((status, answer["error"]["code"].as_str()), (4, Some("E_CONFIG")), "{answer}");
}

#[test]
fn network_loopback_is_private() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let exec = Exec::with_policy(who, &policy_with("network = \"loopback\""));
        // TCP is Landlock's business too, so the control is a datagram to itself.
        let script = format!(
            r#"
def itself():
    a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(("127.0.0.1", 0)); a.settimeout(5)
    a.sendto(b"x", a.getsockname()); assert a.recv(1) == b"x"
control("itself", itself)
denied("host", lambda: socket.create_connection(("127.0.0.1", {port}), 2))
denied("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
"#
        );
        assert_contained(who, &python(&exec, &script), "host raw", "itself");
    }
}

#[test]
fn escaping_system_calls_are_refused() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::new(who);
        let result = python(
            &exec,
            r#"
import ctypes, fcntl
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    def f():
        if libc.syscall(number, *args) < 0:
            raise OSError(ctypes.get_errno(), "syscall")
    return f
def wants(name, number, *args):
    # Only a refusal by the filter counts: a wrong argument would fail as well.
    try:
        call(number, *args)()
        print("ESCAPED", name)
    except OSError as e:
        print("denied" if e.errno in (errno.EPERM, errno.ENOSYS) else "ESCAPED", name, e.errno)
control("getpid", call(39))
wants("ptrace", 101, 0, 0, 0, 0)
wants("unshare_user", 272, 0x10000000)
wants("clone_newuser", 56, 0x10000000 | 17, 0, 0, 0, 0)
wants("clone3", 435, 0, 0)
wants("setns", 308, 0, 0)
wants("mount", 165, b"none", b"/tmp", b"tmpfs", 0, 0)
wants("umount", 166, b"/proc", 2)
wants("chroot", 161, b"/tmp")
wants("bpf", 321, 0, 0, 0)
wants("io_uring", 425, 1, 0)
wants("keyctl", 250, 0, 0, 0, 0, 0)
wants("userfaultfd", 323, 0)
wants("perf", 298, 0, 0, 0, 0, 0)
wants("open_by_handle", 304, 0, 0, 0)
wants("personality", 135, 0x0040000)
wants("x32_getpid", 0x40000000 + 39)
try:
    fcntl.ioctl(0, 0x5412, b"x"); print("ESCAPED tiocsti")
except OSError as e:
    print("denied" if e.errno == errno.EPERM else "ESCAPED", "tiocsti", e.errno)
try:
    fcntl.ioctl(0, 0x5413, b"x" * 8); print("ESCAPED winsize")
except OSError as e:
    print("control winsize" if e.errno != errno.EPERM else "BROKEN winsize")
try:
    fcntl.ioctl(0, 0x100005412, b"x"); print("ESCAPED tiocsti_high")
except (OSError, OverflowError, ValueError) as e:
    print("denied tiocsti_high", getattr(e, "errno", None))
"#,
        );
        let names = "ptrace unshare_user clone_newuser clone3 setns mount umount chroot bpf io_uring keyctl userfaultfd perf open_by_handle personality x32_getpid tiocsti tiocsti_high";
        assert_contained(who, &result, names, "getpid winsize");
    }
}

#[test]
fn files_outside_are_unchanged_and_secrets_hidden() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::new(who);
        exec.write("readme", "read me");
        exec.write(".env", "SECRET=1");
        exec.write(".git/config", "[core]\n");
        exec.write(".git/hooks/pre-commit", "#!/bin/sh\n");
        exec.write("real", "x");
        let outside = exec.root.join("outside");
        fs::write(&outside, "outside").unwrap();
        let policy = exec.home.join("config/policy.toml");
        let script = format!(
            r#"
outside = {outside:?}
control("read", lambda: open("readme").read())
control("write", lambda: open("new", "w").write("x"))
control("scratch", lambda: open(os.environ["TMPDIR"] + "/x", "w").write("x"))
control("home", lambda: open(os.environ["HOME"] + "/x", "w").write("x"))
control("shm", lambda: open("/dev/shm/x", "w").write("x"))
control("null", lambda: open("/dev/null", "w").write("x"))
control("random", lambda: open("/dev/urandom", "rb").read(1))
denied("outside", lambda: open(outside).read())
denied("policy", lambda: open({policy:?}).read())
denied("shadow", lambda: open("/etc/shadow").read())
denied("env", lambda: open(".env").read())
denied("usr", lambda: open("/usr/x", "w"))
denied("etc", lambda: open("/etc/x", "w"))
denied("git_hook", lambda: open(".git/hooks/post-checkout", "w"))
denied("git_hook_move", lambda: os.rename(".git/hooks", "hooks"))
denied("git_move", lambda: os.rename(".git", "moved"))
control("git_write", lambda: open(".git/index", "w").write("x"))
os.symlink("/etc/hostname", "link")
denied("symlink", lambda: open("link", "w"))
os.symlink("/etc/fstab", "link_to_read")
denied("symlink_read", lambda: open("link_to_read").read())
denied("hardlink", lambda: os.link("/etc/passwd", "passwd"))
denied("hardlink_out", lambda: os.link("real", "/usr/share/real"))
denied("init_environ", lambda: open("/proc/1/environ").read())
denied("init_root", lambda: os.listdir("/proc/1/root"))
denied("init_mem", lambda: open("/proc/1/mem", "rb").read(1))
denied("core_pattern", lambda: open("/proc/sys/kernel/core_pattern", "w").write("|/bin/sh"))
denied("sysrq", lambda: open("/proc/sysrq-trigger", "w").write("b"))
denied("sys", lambda: open("/sys/kernel/uevent_helper", "w").write("x"))
denied("chmod", lambda: os.chmod("/usr/bin/env", 0o777))
denied("disk", lambda: open("/dev/vda", "rb").read(1))
denied("mem", lambda: open("/dev/mem", "rb").read(1))
denied("tty", lambda: open("/dev/tty"))
"#
        );
        let result = python(&exec, &script);
        let names = "outside policy shadow env usr etc git_hook git_hook_move git_move symlink symlink_read hardlink init_environ init_root core_pattern chmod disk tty";
        assert_contained(who, &result, names, "read write scratch home shm null random git_write");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "outside");
        assert!(exec.work.join("new").exists());
        assert!(!exec.work.join(".git/hooks/post-checkout").exists() && exec.work.join(".git/index").exists());
    }
}

#[test]
fn command_has_no_capabilities_for_any_user() {
    for who in everyone() {
        let exec = Exec::new(who);
        let result = exec.inside("cat /proc/self/status; ls -l /proc/self/fd; hostname");
        let out = result["stdout"].as_str().unwrap();
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(out.contains(&format!("{set}:\t0000000000000000")), "{who:?} {set}: {out}");
        }
        assert!(out.contains("NoNewPrivs:\t1") && out.contains("Seccomp:\t2"), "{out}");
        let enforcement = &result["enforcement"];
        assert_eq!(enforcement["seccomp"], true);
        assert_eq!(enforcement["no_new_privs"], true);
        assert_eq!(enforcement["landlock"]["status"], "full", "this kernel has no Landlock: {enforcement}");
        assert!(enforcement["namespaces"].as_array().unwrap().contains(&"pid".into()), "{enforcement}");
        // Standard streams, and the descriptor that reads the directory.
        assert_eq!(out.lines().filter(|line| line.contains(" -> ")).count(), 4, "{out}");
    }
}

#[test]
fn written_file_is_not_executable() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::new(who);
        let script = r#"
import subprocess, shutil
control("system", lambda: subprocess.check_call(["/bin/true"]))
shutil.copy("/bin/true", "copy"); os.chmod("copy", 0o755)
denied("copy", lambda: subprocess.check_call(["./copy"]))
shutil.copy("/bin/true", "/tmp/copy"); os.chmod("/tmp/copy", 0o755)
denied("tmp", lambda: subprocess.check_call(["/tmp/copy"]))
loader = "/lib64/ld-linux-x86-64.so.2"
control("loader", lambda: subprocess.check_call([loader, "/bin/true"]))
def through(path):
    if subprocess.call([loader, path], stderr=subprocess.DEVNULL) != 0: raise OSError(1, "refused")
denied("loader_copy", lambda: through(os.path.abspath("copy")))
denied("loader_tmp", lambda: through("/tmp/copy"))
fd = os.memfd_create("x"); os.write(fd, open("/bin/true", "rb").read())
denied("memfd", lambda: os.execve(fd, ["x"], {}))
"#;
        let result = python(&exec, script);
        assert_contained(who, &result, "copy tmp loader_copy loader_tmp", "system loader");
    }
}

#[test]
fn execute_paths_run_inside_writable_trees() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let policy = format!("{POLICY}\n[paths]\nread = [\".\"]\nwrite = [\".\"]\nexecute = [\"target/**\"]\n");
        let exec = Exec::with_policy(who, &policy);
        exec.write("target/.keep", "");
        let script = r#"
import subprocess, shutil
shutil.copy("/bin/true", "target/built"); os.chmod("target/built", 0o755)
control("built", lambda: subprocess.check_call(["target/built"]))
shutil.copy("/bin/true", "copy"); os.chmod("copy", 0o755)
denied("beside", lambda: subprocess.check_call(["./copy"]))
"#;
        assert_contained(who, &python(&exec, script), "beside", "built");
    }
}

#[test]
fn strict_profile_runs_only_one_program() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::with_policy(who, &policy_with("profile = \"strict\""));
        let script = r#"
control("itself", lambda: print("here"))
denied("child", lambda: os.execv("/bin/true", ["true"]))
def through(path):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
        try: os.execv("/lib64/ld-linux-x86-64.so.2", ["ld.so", path])
        except OSError: os._exit(99)
    if os.waitpid(pid, 0)[1] != 0: raise OSError(1, "refused")
denied("loader", lambda: through("/bin/true"))
denied("read_bin", lambda: open("/usr/bin/env", "rb").read(1))
"#;
        assert_contained(who, &python(&exec, script), "child loader read_bin", "itself");
    }
}

#[test]
fn strict_profile_runs_execute_path_without_neighbours() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/beside.c");
    for (who, link) in everyone().into_iter().flat_map(|who| ["-static", "-pie"].map(|link| (who, link))) {
        for profile in ["strict", "build"] {
            let paths = "[paths]\nread = [\".\"]\nwrite = [\".\"]\nexecute = [\"bin/**\"]\n";
            let policy = POLICY.replace("\"sh\"", "\"./bin/first\", \"sh\"");
            let policy = policy.replace("intent =", &format!("profile = \"{profile}\"\nintent =")) + paths;
            let exec = Exec::with_policy(who, &policy);
            exec.work.directory("bin");
            for name in ["first", "second"] {
                exec.program("cc")
                    .args(["-O1", link, "-o"])
                    .arg(exec.work.join("bin").join(name))
                    .arg(source)
                    .run()
                    .success();
            }
            let (alone, _) = exec.ask(&["--", "./bin/first"]);
            assert_eq!(alone["data"]["stdout"], "ran\n", "{who:?} {profile} {link}: {alone}");
            let (answer, _) = exec.ask(&["--", "./bin/first", "bin/second"]);
            let expected = match profile {
                "strict" => "read done, map refused, write refused\nexecute refused\n",
                _ => "read done, map done, write refused\nran\n",
            };
            assert_eq!(answer["data"]["stdout"], expected, "{who:?} {profile} {link}: {answer}");
        }
    }
}

#[test]
fn unknown_newer_system_calls_are_missing() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let script = r#"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def error_of(number):
    ctypes.set_errno(0)
    libc.syscall(number, -1, 0, 0, 0, 0, 0)
    return ctypes.get_errno()
for number in list(range(463, 600)) + [4095, 0x3fffffff, 0x40000000 + 39, 0x7fffffff]:
    print("denied" if error_of(number) == errno.ENOSYS else "ESCAPED", "%d" % number, "")
# fchmodat2 is known to the filter, and the kernel decides about it.
print("control fchmodat2" if error_of(452) == errno.EBADF or error_of(452) == errno.EFAULT else "BROKEN fchmodat2 %d" % error_of(452))
"#;
        assert_contained(who, &python(&Exec::new(who), script), "463 467 469 599", "fchmodat2");
    }
}

#[test]
fn processes_and_scratch_are_limited() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let limits = "processes = 400\nscratch = 4000000\nintent =";
        let exec = Exec::with_policy(who, &POLICY.replace("intent =", limits));
        let script = r#"
control("space", lambda: open("/tmp/a", "wb").write(b"x" * 1_000_000))
denied("space", lambda: open("/tmp/b", "wb").write(b"x" * 20_000_000))
def bomb():
    for _ in range(3000):
        if os.fork() == 0:
            import time; time.sleep(60); os._exit(0)
control("fork", lambda: os.fork() or os._exit(0))
denied("bomb", bomb)
"#;
        let result = python(&exec, script);
        assert_contained(who, &result, "space bomb", "space fork");
        // Ending hundreds of processes can take longer than the count may.
        let killed = result["enforcement"]["killed_processes"].as_u64();
        assert!(killed.is_none_or(|killed| (1..=1024).contains(&killed)), "{killed:?}");
    }
}

#[test]
fn control_group_limits_all_processes_together() {
    cp_testkit::needs!("python3");
    let limits = "cgroup = true\nprocesses = 40\nmemory = 300000000\nintent =";
    let exec = Exec::with_policy(Who::Me, &POLICY.replace("intent =", limits));
    let script = r#"
import time
def bomb():
    for _ in range(100):
        if os.fork() == 0: time.sleep(60); os._exit(0)
denied("bomb", bomb)
"#;
    let result = python(&exec, script);
    let (cgroup, missing) = (&result["enforcement"]["cgroup"], result["enforcement"]["missing"].to_string());
    if cgroup != "cgroup_v2" {
        // Most machines delegate no group of version 2, and the answer says which limits do not hold.
        assert_eq!(cgroup, "rlimits+pid_namespace");
        for limit in ["cgroup: no control group of version 2", "memory: the limit holds only with a control group"] {
            assert!(missing.contains(limit), "{missing}");
        }
        return;
    }
    assert_contained(Who::Me, &result, "bomb", "");
    // Each of them is within the limit, all of them are not.
    let result = python(
        &exec,
        r#"
for _ in range(6):
    if os.fork() == 0:
        keep = b"x" * 100_000_000
        import time; time.sleep(1); os._exit(0)
statuses = [os.wait()[1] for _ in range(6)]
print("control some" if 0 in statuses else "BROKEN none")
print("denied all 12" if 9 in statuses else "ESCAPED all")
"#,
    );
    assert_contained(Who::Me, &result, "all", "some");
}

#[test]
fn control_group_replacement_is_recorded_and_can_be_refused() {
    for who in everyone() {
        let named = |policy: &str| Exec::with_policy(who, policy).inside("true")["enforcement"]["cgroup"].clone();
        assert_eq!(named(POLICY), "rlimits+pid_namespace");
        let wanted = policy_with("cgroup = true");
        let found = named(&wanted);
        assert!(["cgroup_v2", "rlimits+pid_namespace"].iter().any(|name| found == **name), "{found}");
        let required = policy_with("require = [\"cgroup\"]");
        let (answer, status) = Exec::with_policy(who, &required).ask(&["--", "true"]);
        if found == "rlimits+pid_namespace" {
            assert_eq!((status, &answer["error"]["details"]["layer"]), (4, &"cgroup".into()), "{who:?}: {answer}");
        } else {
            assert_eq!(status, 0, "{who:?}: {answer}");
        }
    }
}

#[test]
fn repository_programs_run_inside_sandbox() {
    for who in everyone() {
        let exec = Exec::with_policy(who, "[exec]\nallowed_commands = [\"git\"]\n");
        let (root, outside) = (&exec.work, exec.root.join("escaped"));
        exec.write("file", "one\n");
        exec.write(".gitattributes", "file filter=evil diff=evil\n");
        let evil = format!("touch {}; touch ran; cat", outside.display());
        let git = |args: &[&str]| {
            let git = exec.program("git").args(["-c", "user.email=a", "-c", "user.name=a", "-c", "safe.directory=*"]);
            git.args(args).run().success();
        };
        git(&["init", "-q"]);
        git(&["add", "."]);
        git(&["commit", "-qm", "a"]);
        for key in
            ["filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "diff.evil.command", "diff.external"]
        {
            git(&["config", key, &evil]);
        }
        std::fs::write(root.join("file"), "two\n").unwrap();
        for line in ["git status", "git diff", "git add file"] {
            exec.ask(&["-c", line]);
            assert!(!outside.exists(), "{who:?} {line} reached outside");
        }
        assert!(root.join("ran").exists(), "{who:?}: the control did not run inside");
        // The other control: without the sandbox it does reach there.
        let git = exec.program("git").args(["-c", "safe.directory=*", "diff", "HEAD"]);
        git.env("GIT_PAGER", "cat").run();
        assert!(outside.exists(), "{who:?}: the control did not reach outside");
    }
}

#[test]
fn run_as_changes_uid_of_root() {
    if !required("the rights of root", rustix::process::geteuid().is_root()) {
        return;
    }
    let exec = Exec::with_policy(Who::Me, &policy_with("run_as = \"owner-of-cwd\""));
    std::os::unix::fs::chown(&exec.work, Some(1000), Some(1001)).unwrap();
    let result = exec.inside("id -u; id -g; id -G; touch mine");
    assert_eq!(
        (&result["stdout"], &result["enforcement"]["uid"]),
        (&"1000\n1001\n1001\n".into(), &1000.into()),
        "{result}"
    );
    assert!(exec.work.join("mine").exists());
}

#[test]
fn swapped_script_runs_with_hashed_text() {
    for who in everyone() {
        let policy = format!(
            "{}\n[paths]\nread = [\".\"]\nwrite = []\nexecute = [\"tool\"]\n",
            POLICY.replace("\"sh\",", "\"sh\", \"tool\",")
        );
        let exec = Exec::with_policy(
            who,
            &policy.replace("restricted", "pin = { tool = \"TOOL\" }\nrestricted").replace("TOOL", "/PIN/tool"),
        );
        let tool = exec.executable("tool", "#!/bin/sh\necho first\n");
        let policy = fs::read_to_string(exec.home.join("config/policy.toml")).unwrap();
        let policy = policy.replace("/PIN/tool", tool.to_str().unwrap());
        fs::write(exec.home.join("config/policy.toml"), policy).unwrap();
        let (answer, status) = exec.ask(&["--", "tool"]);
        assert_eq!((status, answer["data"]["stdout"].as_str()), (0, Some("first\n")), "control: {answer}");

        // The ledger's lock holds the program between the decision and the start.
        let ledger = fs::File::open(exec.ledger()).unwrap();
        ledger.lock().unwrap();
        let before = fs::read_to_string(exec.ledger()).unwrap();
        let child = exec.command(&["--", "tool"]).start();
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert_eq!(fs::read_to_string(exec.ledger()).unwrap(), before, "it did not wait");
        fs::write(exec.work.join("other"), "#!/bin/sh\necho ESCAPED\n").unwrap();
        fs::set_permissions(exec.work.join("other"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(exec.work.join("other"), &tool).unwrap();
        ledger.unlock().unwrap();
        let answer = child.finish().only();
        assert_eq!(answer["data"]["stdout"], "first\n", "{who:?}: {answer}");
        let text = b"#!/bin/sh\necho first\n";
        assert_eq!(answer["data"]["exe"]["sha256"].as_str().unwrap(), sha256(text), "{who:?}: {answer}");
        // The control: what is there now runs when it is asked for now.
        assert_eq!(exec.ask(&["--", "tool"]).0["data"]["stdout"], "ESCAPED\n", "{who:?}");
    }
}
