"""`python -P runtime/from_elsewhere.py PROGRAM`: `python -m runtime PROGRAM` for another Python.

vLLM's environment must find our packages, and none of those that are installed beside them: its
torch and transformers are of other versions. So only `planner` and `runtime` are put in place.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]

for _name in ("planner", "runtime"):
    _folder = _ROOT / _name
    _spec = spec_from_file_location(
        _name, _folder / "__init__.py", submodule_search_locations=[str(_folder)]
    )
    if _spec is None or _spec.loader is None:
        raise ImportError(f"{_folder} holds no package; install helixweb again")
    sys.modules[_name] = _module = module_from_spec(_spec)
    _spec.loader.exec_module(_module)

if __name__ == "__main__":
    from runtime.__main__ import main

    sys.exit(main(sys.argv[1:]))
