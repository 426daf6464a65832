//! A command leaves no file that grants rights to another user, and the strict profile executes one program.

use cp_testkit::required;

use crate::attempts::{inside, refused_only_inside};
use crate::exec::{Exec, POLICY, Who, everyone, policy_with};

#[test]
fn set_id_modes_are_refused() {
    cp_testkit::needs!("python3");
    if !required("the numbers of system calls", cfg!(target_arch = "x86_64")) {
        return;
    }
    for who in everyone() {
        let exec = Exec::new(who);
        refused_only_inside(
            &exec,
            &["plain_chmod", "plain_open", "sticky"],
            r#"
path = "file-of-" + str(os.getpid())
open(path, "w").close()
name = path.encode()
fd = os.open(path, os.O_RDWR)
new = iter(range(1000))
fresh = lambda: (path + "-" + str(next(new))).encode()
flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
attempt("plain_chmod", lambda: call(90, name, 0o755))
attempt("sticky", lambda: os.mkdir(fresh(), 0o1777))
for bits in (0o4755, 0o2755, 0o6755, 0o4000):
    o = oct(bits)[2:]
    attempt("open_" + o, lambda: call(2, fresh(), flags, bits))
    attempt("openat_" + o, lambda: call(257, -100, fresh(), flags, bits))
    attempt("tmpfile_" + o, lambda: call(257, -100, b".", os.O_TMPFILE | os.O_RDWR, bits))
    attempt("creat_" + o, lambda: call(85, fresh(), bits))
    attempt("mknod_" + o, lambda: call(133, fresh(), 0o100000 | bits, 0))
    attempt("mknodat_" + o, lambda: call(259, -100, fresh(), 0o100000 | bits, 0))
call(90, name, 0o644)
# Without a flag that makes a file, the mode counts for nothing.
attempt("plain_open", lambda: call(2, name, os.O_RDONLY, 0o6755))
how = (ctypes.c_uint64 * 3)(flags, 0o4755, 0)
attempt("openat2", lambda: call(437, -100, fresh(), how, 24))
"#,
        );
    }
}

/// What a change of a mode leaves: for each call and mode, the mode of a file and of a directory.
const MODES: &str = r#"
import stat, sys
flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
count = iter(range(1000))
def made(is_directory):
    name = "made-%d-%d" % (os.getpid(), next(count))
    if is_directory: os.mkdir(name)
    else: os.close(os.open(name, flags, 0o644))
    return name
def linked(name):
    os.symlink(name, name + "-link"); return name + "-link"
def program(words):
    subprocess.check_call(words)
def described(name, f):
    fd = os.open(name, os.O_RDONLY)
    try: f(fd)
    finally: os.close(fd)
calls = {
    "chmod": lambda name, bits: call(90, name.encode(), bits),
    "chmod_absolute": lambda name, bits: call(90, os.path.abspath(name).encode(), bits),
    "chmod_link": lambda name, bits: call(90, linked(name).encode(), bits),
    "fchmod": lambda name, bits: described(name, lambda fd: call(91, fd, bits)),
    "descriptor": lambda name, bits: described(name, lambda fd: os.chmod("/proc/self/fd/%d" % fd, bits)),
    "fchmodat": lambda name, bits: described(".", lambda fd: call(268, fd, name.encode(), bits)),
    "fchmodat2": lambda name, bits: call(452, -100, name.encode(), bits, 0),
    "not_followed": lambda name, bits: call(452, -100, name.encode(), bits, 0x100),
    "program": lambda name, bits: program(["chmod", "0%o" % bits, name]),
    "high_half": lambda name, bits: call(90, name.encode(), ctypes.c_uint64((1 << 40) | bits)),
}
for is_directory in (False, True):
    for bits in (0o4755, 0o2755, 0o6711, 0o1755, 0o700):
        for way, f in calls.items():
            name = made(is_directory)
            f(name, bits)
            print(way, "directory" if is_directory else "file", "%o" % bits, "%o" % stat.S_IMODE(os.stat(name).st_mode))
name = made(False)
tries = {
    "missing": lambda: call(90, b"missing", 0o4755),
    "closed": lambda: call(91, 99, 0o4755),
    "link_itself": lambda: call(452, -100, linked(name).encode(), 0o4755, 0x100),
    "address": lambda: call(90, 1, 0o4755),
}
# Outside it would be changed.
if len(sys.argv) == 1: tries["of_another"] = lambda: call(90, b"/usr/bin/env", 0o4755)
for what, f in tries.items():
    try: f(); print(what, "error", "-", "none")
    except OSError as error: print(what, "error", "-", errno.errorcode[error.errno])
"#;

#[test]
fn set_id_bits_of_files_are_dropped_and_directories_keep_their_group() {
    cp_testkit::needs!("python3");
    if !required("the numbers of system calls", cfg!(target_arch = "x86_64")) {
        return;
    }
    for who in everyone() {
        let exec = Exec::new(who);
        let said = |output: &str| -> Vec<Vec<String>> {
            let words = |line: &str| line.split(' ').map(str::to_owned).collect();
            output.lines().map(words).collect()
        };
        let (_, result) = inside(&exec, MODES);
        let found = said(result["stdout"].as_str().unwrap());
        let control =
            said(&exec.outside(&format!("cd {} && python3 probe.py outside", exec.work.display())).run().stdout);
        assert_eq!((found.len(), control.len()), (105, 104), "{result}");
        let refused = if who == Who::Me { "EROFS" } else { "EPERM" };
        assert_eq!(found[104], ["of_another", "error", "-", refused], "{who:?}");
        for (inside, outside) in found.iter().zip(&control) {
            let [way, kind, bits, mode] = &**inside else { panic!("{inside:?}") };
            let octal = |text: &str| u32::from_str_radix(text, 8).unwrap();
            let expected = match kind.as_str() {
                "file" => format!("{:o}", octal(bits) & 0o1777),
                "directory" => format!("{:o}", octal(bits) & 0o3777),
                _ => outside[3].clone(),
            };
            assert_eq!((mode, &inside[..3]), (&expected, &outside[..3]), "{who:?} {way} {kind} {bits}");
            let is_whole = ["file", "directory"].contains(&kind.as_str());
            assert!(!is_whole || outside[3] == *bits, "{who:?} {outside:?}: the control");
        }
        let line = "mkdir d && chmod g+s d && test -g d && git init -q --shared e && test -g e/.git && \
                    install -m 2755 -d i && test -g i && install -m 4755 /bin/true t && test $(stat -c %a t) = 755 && \
                    mkdir a && tar -cf t.tar --mode=4755 t && tar -xpf t.tar -C a && test $(stat -c %a a/t) = 755";
        let exec = Exec::with_policy(who, &POLICY.replace("[\"sh\"", "[\"install\", \"tar\", \"sh\""));
        let (answer, status) = exec.ask(&["-c", line]);
        assert_eq!(status, 0, "{who:?} {answer}");
        let outside = format!("cd {} && rm -rf t && install -m 4755 /bin/true t && test -u t", exec.work.display());
        exec.outside(&outside).run().success();
    }
}

#[test]
fn devices_and_file_capabilities_cannot_be_created() {
    cp_testkit::needs!("python3");
    if !required("the rights of root", rustix::process::geteuid().is_root()) {
        return;
    }
    // The control needs root, so only root is asked to fail; the ordinary user is refused outside too.
    refused_only_inside(
        &Exec::new(Who::Me),
        &["fifo"],
        r#"
import shutil, stat
name = "of-" + str(os.getpid())
shutil.copy("/bin/true", name)
attempt("fifo", lambda: os.mkfifo(name + "-fifo"))
attempt("null", lambda: os.mknod(name + "-null", 0o666 | stat.S_IFCHR, os.makedev(1, 3)))
attempt("disk", lambda: os.mknod(name + "-disk", 0o666 | stat.S_IFBLK, os.makedev(8, 0)))
attempt("whiteout", lambda: os.mknod(name + "-white", stat.S_IFCHR, 0))
capability = bytes([1, 0, 0, 2]) + bytes([0, 0x20, 0, 0]) + bytes(12)
attempt("setxattr", lambda: os.setxattr(name, "security.capability", capability))
"#,
    );
}

#[test]
fn strict_profile_allows_one_execution() {
    cp_testkit::needs!("python3");
    if !required("the numbers of system calls", cfg!(target_arch = "x86_64")) {
        return;
    }
    let script = r#"
import ctypes
def child(f):
    # What is executed in the child replaces it, and its status is that of the program.
    pid = os.fork()
    if pid == 0:
        try: f()
        except BaseException: pass
        os._exit(99)
    if os.waitpid(pid, 0)[1] != 0: raise OSError(1, "refused")
words = (ctypes.c_char_p * 2)(b"true", None)
loader = b"/lib64/ld-linux-x86-64.so.2"
through = (ctypes.c_char_p * 3)(b"ld.so", b"/bin/true", None)
version = (ctypes.c_char_p * 3)(b"python3", b"-V", None)
none = (ctypes.c_char_p * 1)(None)
attempt("control", lambda: child(lambda: os._exit(0)))
attempt("execve", lambda: child(lambda: call(59, b"/bin/true", words, none)))
attempt("loader", lambda: child(lambda: call(59, loader, through, none)))
attempt("execveat", lambda: child(lambda: call(322, -100, b"/bin/true", words, none, 0)))
attempt("execveat_loader", lambda: child(lambda: call(322, -100, loader, through, none, 0x1000)))
def opened(path): return os.open(path, os.O_PATH)
attempt("execveat_fd", lambda: child(lambda: call(322, opened(loader), b"", through, none, 0x1000)))
attempt("execveat_self", lambda: child(lambda: call(322, -100, os.readlink("/proc/self/exe").encode(), version, none, 0)))
def copied(path):
    fd = os.memfd_create("copy", 0)
    with open(path, "rb") as file: os.write(fd, file.read())
    return fd
attempt("memory", lambda: child(lambda: os.execve(copied(os.readlink("/proc/self/exe")), ["python3", "-V"], {})))
attempt("number", lambda: child(lambda: call(322, 1 << 20, loader, through, none, 0x1000)))
attempt("posix_spawn", lambda: child(lambda: os._exit(os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1])))
"#;
    for who in everyone() {
        let exec = Exec::with_policy(who, &policy_with("profile = \"strict\""));
        refused_only_inside(&exec, &["control"], script);
        // The same process twice is one step.
        let again =
            "try: os.execv(os.readlink('/proc/self/exe'), ['python3', 'again'])\nexcept PermissionError: pass\n";
        let (_, result) = inside(&exec, &again.repeat(2));
        assert!(result["stderr"].as_str().unwrap().contains("`strict` executes one program"), "{result}");
        let steps = exec.entries("exec.step");
        let denied = |step: &&serde_json::Value| {
            assert_eq!(
                (&step["data"]["decision"], &step["data"]["rule"]),
                (&"deny".into(), &"strict".into()),
                "{step}"
            );
            step["data"]["argv_as_asked"][1] == "again"
        };
        assert_eq!(steps.iter().filter(denied).count(), 1, "{steps:?}");
    }
}
