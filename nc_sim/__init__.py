from pathlib import Path as _Path

# A clone keeps isa/ and workloads/ beside this package; an installed copy holds them inside (docs/decisions/0001).
if not (_Path(__file__).parent / "isa").is_dir():
    __path__.append(str(_Path(__file__).parent.parent))
