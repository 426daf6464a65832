import os
def attempt(name, f):
    try:
        f(); print("can", name)
    except OSError:
        print("cannot", name)
base = os.path.abspath(__file__).split("/modules/")[0] + "/modules"
at = lambda name: os.path.join(base, name)
attempt("read_src", lambda: open(at("m/src/a")).read())
attempt("read_secret", lambda: open(at("m/secret/s")).read())
attempt("read_shared", lambda: open(at("shared/x")).read())
attempt("write_out", lambda: open(at("m/out/new"), "w").write("x"))
attempt("write_src", lambda: open(at("m/src/new"), "w").write("x"))
attempt("write_shared", lambda: open(at("shared/new"), "w").write("x"))
