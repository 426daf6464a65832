# Before every file of probes. `V` is what the victim outside told: its process, its ports, its paths.
import ctypes, errno, fcntl, json, mmap, os, resource, signal, socket, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
ME = str(os.getpid())
NEW = iter(range(100000))
OUT = V["outside"]

def call(number, *args):
    """A system call by its number, without a library between."""
    # A plain number would be passed as 32 bits, with whatever is beside them.
    args = [ctypes.c_long(word) if isinstance(word, int) else word for word in args]
    result = libc.syscall(ctypes.c_long(number), *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), "system call %d" % number)
    return result

def fresh(prefix="made"):
    """A name in the working directory that nobody has used."""
    return "%s-%s-%d" % (prefix, os.getpid(), next(NEW))

def fresh_out():
    return "%s/made-%s-%d" % (OUT, os.getpid(), next(NEW))

def same(found, expected):
    if found != expected:
        raise OSError(errno.ENODATA, "something else was read")

def reaches(number, *args):
    """Whether a call gets as far as having its arguments looked at: they are wrong, so that it does nothing."""
    try:
        call(number, *args)
    except OSError as e:
        if e.errno in (errno.EPERM, errno.ENOSYS, errno.EACCES):
            raise

def child(f):
    """Runs something in a process of its own that ends with 0 if it was done."""
    pid = os.fork()
    if pid == 0:
        try:
            f()
        except OSError as e:
            os._exit(e.errno or 1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status != 0:
        raise OSError(os.WEXITSTATUS(status) or 1, "the child was refused")

def probe(group, name, layers, f, needs=""):
    """Prints what became of an attempt: done, refused with a number, or killed. Each is made in a process of its own.

    `layers` are those of which any one is enough to refuse it, `a+b` where it takes both; `needs` is "root" where an ordinary user is refused outside, too."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(8)
        try:
            f()
            status = 0
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            status = 1
        except OSError as e:
            status = e.errno or 1
        except (MemoryError, ValueError):
            status = errno.ENOMEM
        except BaseException as e:
            print(name, repr(e), file=sys.stderr, flush=True)
            status = 250
        os._exit(status)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        what = "hung" if os.WTERMSIG(status) == signal.SIGALRM else "killed %d" % os.WTERMSIG(status)
    else:
        code = os.WEXITSTATUS(status)
        what = {0: "done", 250: "broken"}.get(code, "refused %d" % code)
    print("\t".join(("probe", group, name, layers, needs, what)), flush=True)
