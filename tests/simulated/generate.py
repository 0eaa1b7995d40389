"""Writes the declarations and registrations of a backend: ``generate.py YAML FOLDER TORCH_ROOT``.

To be replaced by ``python -m codegen backend-stubs``, which will do the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

from codegen.aten import find_torch, native_functions
from codegen.backend.document import read_backend_file
from codegen.backend.emit import render_backend
from codegen.output import write

source, folder, torch_root = map(Path, sys.argv[1:])
with native_functions(find_torch(torch_root)) as functions:
    files = render_backend(read_backend_file(source, functions), functions)
for name, text in files.items():
    write(folder / name, text)
