for _ in range(20):
    os.mkdir("x" * 240); os.rename("long", "x" * 240 + "/long"); os.chdir("x" * 240)
attempt("moved", lambda: open("long/.token"))
