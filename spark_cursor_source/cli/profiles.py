"""Profiles: named sets of connection options in the user's configuration file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from spark_cursor_source.errors import ProfileUnreadable, UnknownProfile

DEFAULT_PROFILE = "default"


def profiles_path() -> Path:
    """Returns the path of the file: ``cursorq/config.toml`` in ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "cursorq" / "config.toml"


def read_profile(name: str | None, known: Collection[str]) -> dict[str, Any]:
    """Returns the values of a profile by key; ``kafka`` is a table.

    Without a name, the profile is ``default``, which need not exist. ``known`` are the keys that a profile
    may have. Values are text; errors never show them.

    Raises:
        UnknownProfile: the file or the profile does not exist.
        ProfileUnreadable: the file is not TOML, or a key is unknown, or a value has another type.
    """
    path = profiles_path()
    profiles = _profiles(path)
    if name is None and DEFAULT_PROFILE not in profiles:
        return {}
    wanted = DEFAULT_PROFILE if name is None else name
    found = profiles.get(wanted)
    if found is None:
        raise UnknownProfile(str(name), str(path), tuple(sorted(profiles)))
    _check(path, wanted, found, known)
    return dict(found)


def _profiles(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as why:
        raise ProfileUnreadable(str(path), getattr(why, "strerror", None) or "it is not UTF-8") from None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as why:
        # "from None": the line may hold a secret. The reason names only its place.
        place = str(why)[str(why).rfind("(") :]
        raise ProfileUnreadable(str(path), f"it is not TOML {place}") from None
    for key in tables:
        if key != "profile":
            raise ProfileUnreadable(str(path), f"it has {key!r}, which is no profile such as [profile.prod]")
    profiles = tables.get("profile", {})
    if not isinstance(profiles, dict) or not all(isinstance(one, dict) for one in profiles.values()):
        raise ProfileUnreadable(str(path), "its profiles are not tables such as [profile.prod]")
    return profiles


def _check(path: Path, name: str, profile: Mapping[str, Any], known: Collection[str]) -> None:
    for key, value in profile.items():
        if key not in known and key != "kafka":
            keys = ", ".join([*sorted(known), "kafka"])
            raise ProfileUnreadable(str(path), f"[profile.{name}] has a key {key!r}; the keys are {keys}")
        if key == "kafka" and not isinstance(value, dict):
            raise ProfileUnreadable(str(path), f"kafka of [profile.{name}] is not a table of client options")
        if key != "kafka" and not isinstance(value, str):
            raise ProfileUnreadable(str(path), f"{key} of [profile.{name}] is not text")
