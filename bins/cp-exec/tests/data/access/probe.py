"""What may be done with each path: it exists, read, write, execute, create in it or beside it, move, delete."""
import errno, os, sys

root, *paths = sys.stdin.read().splitlines()


def may(act):
    try:
        return act() is not False
    except OSError as e:
        # The last check that the kernel makes: the directory could be removed if it were empty.
        return e.errno == errno.ENOTEMPTY


def read(path):
    if os.path.isdir(path):
        os.listdir(path)
    else:
        with open(path, "rb") as file:
            file.read(1)


def write(path):
    if os.path.isdir(path):
        os.utime(path)
    else:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND))


def execute(path):
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open("/dev/null", os.O_RDWR), 1)
            os.chdir(path) if os.path.isdir(path) else os.execv(path, [path])
            os._exit(0)
        except OSError:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 99


def create(path):
    if os.path.isdir(path):
        path = os.path.join(path, "new-file")
    elif os.path.lexists(path):
        path += ".new"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.unlink(path)


def move(path):
    other = path.rstrip("/") + ".moved"
    os.rename(path, other)
    os.rename(other, path)


def delete(path):
    if os.path.isdir(path) and not os.path.islink(path):
        os.rmdir(path)
    else:
        os.unlink(path)


ACTS = [("e", os.lstat), ("r", read), ("w", write), ("x", execute), ("c", create), ("m", move)]
done = {path: "".join(letter if may(lambda: act(path)) else "-" for letter, act in ACTS) for path in paths}
for path in sorted(paths, reverse=True):
    done[path] += "d" if path.startswith(root) and may(lambda: delete(path)) else "-"
for path in paths:
    print(path.replace(root, "@"), done[path])
FLAGS = ("ro", "nosuid", "nodev", "noexec")
for line in open("/proc/self/mountinfo"):
    point, options = line.split()[4:6]
    flags = [flag for flag in FLAGS if flag in options.split(",")]
    # The directory around the project is a mount of its own only if it lies in /tmp itself.
    if point.startswith(root) and (point, flags) != (root, list(FLAGS)):
        print("mount:" + point.replace(root, "@"), ",".join(flags) or "rw")
