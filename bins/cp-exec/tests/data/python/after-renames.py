import glob
hidden = ["conf/prod/key.pem", "deep/a/key.pem", "moved/below/.env", "moved/below/.token"]
for name in hidden:
    attempt("read_" + name, lambda: open(name).read())
attempt("plain_read", lambda: open("plain2/file").read())
def any_readable():
    for where, _, names in os.walk("."):
        for name in names:
            try:
                if open(os.path.join(where, name)).read() == "hidden": return
            except OSError: pass
    raise OSError(2, "nothing")
attempt("read_any", any_readable)
