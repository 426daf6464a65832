"""Packs an installed tree as a Python wheel: the programs as scripts, the rest of the tree as data, and the module cp_filters.

usage: wheel.py TREE VERSION TRIPLE DIRECTORY

The programs are static, so the wheel is for each Linux of this architecture. SOURCE_DATE_EPOCH is the time of all members.
"""

import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

tree, version, triple, directory = Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
machine = triple.split("-")[0]
platform = f"manylinux_2_17_{machine}.manylinux2014_{machine}.musllinux_1_1_{machine}"
stem = f"cp_filters-{version}"
module = Path(__file__).parent / "python"


def below(root: Path, prefix: str, mode: int) -> dict[str, tuple[bytes, int]]:
    files = sorted(path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {f"{prefix}{path.relative_to(root)}": (path.read_bytes(), mode) for path in files}


metadata = f"""Metadata-Version: 2.4
Name: cp-filters
Version: {version}
Summary: Small Unix filters for language models, and a module that runs them
License-Expression: MIT OR Apache-2.0
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

"""
wheel = "Wheel-Version: 1.0\nGenerator: cp-tools\nRoot-Is-Purelib: false\n"
wheel += "".join(f"Tag: py3-none-{tag}\n" for tag in platform.split("."))
members = {
    **below(module, "", 0o644),
    **below(tree / "bin", f"{stem}.data/scripts/", 0o755),
    **below(tree / "share", f"{stem}.data/data/share/", 0o644),
    f"{stem}.dist-info/METADATA": (metadata.encode() + (tree / "share/doc/cp-tools/README.md").read_bytes(), 0o644),
    f"{stem}.dist-info/WHEEL": (wheel.encode(), 0o644),
}
record = f"{stem}.dist-info/RECORD"
rows = []
for name, (content, _) in members.items():
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    rows.append(f"{name},sha256={digest},{len(content)}\n")
members[record] = ("".join([*rows, f"{record},,\n"]).encode(), 0o644)

moment = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
with zipfile.ZipFile(directory / f"{stem}-py3-none-{platform}.whl", "w") as archive:
    for name, (content, mode) in members.items():
        member = zipfile.ZipInfo(name, moment)
        member.create_system = 3
        member.external_attr = (0o100000 | mode) << 16
        archive.writestr(member, content, zipfile.ZIP_DEFLATED, 9)
