"""Puts jobs, conf and notebooks into the wheel, from where ``cursorq init`` copies them."""

from pathlib import Path
from shutil import copytree, ignore_patterns

from setuptools import setup
from setuptools.command.build_py import build_py

STARTER = ("conf", "jobs", "notebooks")  #: as in spark_cursor_source/cli/init.py


class BuildWithStarter(build_py):
    """An editable install needs no copy: the files are read at the top of the checkout."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name in STARTER:
                into = Path(self.build_lib, "spark_cursor_source", "starter", name)
                copytree(name, into, ignore=ignore_patterns("__pycache__"), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithStarter})
