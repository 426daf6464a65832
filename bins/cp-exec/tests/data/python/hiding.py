attempt("odd", lambda: os.rename(b"odd", b"\xff\xfe"))
attempt("closed", lambda: os.chmod("closed", 0))
