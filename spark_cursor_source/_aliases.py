"""Old names of public modules, which still work and tell their new names."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NamedTuple

PACKAGE = "spark_cursor_source"


class Renamed(NamedTuple):
    """The new home of a module, and the names in it that changed."""

    module: str
    names: Mapping[str, str] = {}  #: old name -> new name


RENAMED = {
    f"{PACKAGE}.core.option_reader": Renamed(f"{PACKAGE}.options.reader"),
    f"{PACKAGE}.embedded": Renamed(f"{PACKAGE}.devkit"),
    f"{PACKAGE}.kafka.messages": Renamed(f"{PACKAGE}.devkit"),
    f"{PACKAGE}.kafka.redrive": Renamed(f"{PACKAGE}.admin"),
    f"{PACKAGE}.kafka.resume": Renamed(f"{PACKAGE}.admin", {"resume": "close_breaker"}),
    f"{PACKAGE}.kafka.stats": Renamed(f"{PACKAGE}.admin"),
    f"{PACKAGE}.kafka.subscriptions": Renamed(f"{PACKAGE}.admin"),
}


class _AliasLoader(Loader):
    """Fills a module under its old name with the names of its new home."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        renamed = RENAMED[module.__name__]
        warnings.warn(
            f"module {module.__name__} is now {renamed.module}; the old name goes with version 1.0",
            DeprecationWarning,
            stacklevel=2,
        )
        home = import_module(renamed.module)
        public = {name: value for name, value in vars(home).items() if not name.startswith("__")}
        module.__dict__.update(public)
        module.__dict__.update({old: getattr(home, new) for old, new in renamed.names.items()})


class _AliasFinder(MetaPathFinder):
    """Finds the old names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, _AliasLoader()) if fullname in RENAMED else None


def install() -> None:
    """Make the old names importable; a second call has no effect."""
    if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        sys.meta_path.append(_AliasFinder())
