import os
for name in ["t/lib/new", "t/lib/k.py", "t/specs/a", "t/ledger/governance.jsonl", "t/planes/ho2/ledger/w.jsonl",
             "t/planes/ho1/sessions/SES-1/session.jsonl", "t/own/new", "t/own/a", "beside"]:
    try:
        open(name, "a").write("x"); print("wrote", name)
    except OSError:
        print("kept", name)
for name in ["t/lib", "t/ledger", "t"]:
    try:
        os.rename(name, name + "2"); os.rename(name + "2", name); print("moved", name)
    except OSError:
        print("stayed", name)
