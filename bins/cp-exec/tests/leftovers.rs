//! A command leaves no file that grants rights to another user, and the strict profile executes one program.

use cp_testkit::required;

use crate::attempts::{inside, refused_only_inside};
use crate::exec::{Exec, POLICY, Who, everyone};

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
    attempt("chmod_" + o, lambda: call(90, name, bits))
    attempt("fchmod_" + o, lambda: call(91, fd, bits))
    attempt("fchmodat_" + o, lambda: call(268, -100, name, bits))
    attempt("fchmodat2_" + o, lambda: call(452, -100, name, bits, 0))
    attempt("open_" + o, lambda: call(2, fresh(), flags, bits))
    attempt("openat_" + o, lambda: call(257, -100, fresh(), flags, bits))
    attempt("tmpfile_" + o, lambda: call(257, -100, b".", os.O_TMPFILE | os.O_RDWR, bits))
    attempt("creat_" + o, lambda: call(85, fresh(), bits))
    attempt("mkdir_" + o, lambda: call(83, fresh(), bits))
    attempt("mkdirat_" + o, lambda: call(258, -100, fresh(), bits))
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
import resource
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
for index, number in enumerate((limit, limit + 1, 4096)):
    # A path that begins with a slash makes any descriptor do, also one that is not open.
    attempt("number_%d" % index, lambda: child(lambda: call(322, number, loader, through, none, 0x1000)))
attempt("posix_spawn", lambda: child(lambda: os._exit(os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1])))
"#;
    let beyond = r#"
import fcntl, resource
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
attempt("below", lambda: os.dup2(0, limit[0] - 1))
attempt("dup2", lambda: os.dup2(0, limit[0]))
attempt("dup3", lambda: call(292, 0, limit[0], 0))
attempt("dupfd", lambda: fcntl.fcntl(0, fcntl.F_DUPFD, limit[0]))
attempt("raise", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1] + 1, limit[1] + 1)))
attempt("open_there", lambda: os.stat("/proc/self/fd/%d" % limit[0]))
"#;
    for who in everyone() {
        let exec = Exec::with_policy(who, &POLICY.replace("intent =", "profile = \"strict\"\nintent ="));
        refused_only_inside(&exec, &["control"], script);
        let (found, result) = inside(&exec, beyond);
        for (name, what) in &found {
            assert_eq!(what, if name == "below" { "done" } else { "refused" }, "{who:?} {name}: {result}");
        }
        assert_eq!(found.len(), 6, "{result}");
    }
}
