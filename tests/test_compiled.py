"""What is compiled ahead is what Python and pytest look for; otherwise all takes longer and nothing fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
import zipimport
from pathlib import Path

from tests import conftest
from tests.compiled import PLUGINS, ROOT, compile_archive, rewrite, spark_archives

#: imports what each Python process of Spark imports, and prints what was compiled for it
IMPORT = """\
import sys
compiled = []
sys.addaudithook(lambda event, args: event == "compile" and compiled.append(args[1]))
import pyspark.daemon, pyspark.worker, pyspark.sql.streaming.python_streaming_source_runner
assert ".zip" in pyspark.__file__, pyspark.__file__
print(*[name for name in compiled if name and ".zip" in str(name)])
"""


def test_a_file_with_rewritten_assertions_is_found_and_not_rewritten_again(tmp_path: Path) -> None:
    path = tmp_path / "test_one.py"
    path.write_text("def test_one() -> None:\n    assert 1 < 2\n")
    assert rewrite(path)
    assert not rewrite(path)


def test_the_plugins_of_the_suite_are_compiled_too() -> None:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PLUGINS}
    assert names == set(conftest.pytest_plugins)


def test_processes_of_spark_compile_nothing_of_a_compiled_archive(tmp_path: Path) -> None:
    archives = [Path(shutil.copy(one, tmp_path)) for one in spark_archives()]
    assert {one.name.split("-")[0] for one in archives} == {"py4j", "pyspark.zip"}
    for one in archives:
        compile_archive(one)
        assert not compile_archive(one)
    path = os.pathsep.join(map(str, archives))
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT],
        env=os.environ | {"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.strip() == ""


def test_the_commands_of_the_tuning_guide_add_bytecode(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "how-to" / "tune.md").read_text(encoding="utf-8")
    commands = guide.split("## Start queries faster")[1].split("```bash\n")[1].split("```")[0]
    library = tmp_path / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    for name, package in (("pyspark.zip", "one"), ("py4j-0-src.zip", "other")):
        with zipfile.ZipFile(library / name, "w") as archive:
            archive.writestr(f"{package}/__init__.py", "VALUE = 1\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(tmp_path)}
    subprocess.run(["bash", "-euc", commands], cwd=tmp_path, env=environment, timeout=60, check=True)
    assert sorted(one.name for one in tmp_path.iterdir() if one.name != "__pycache__") == ["pyspark"]
    for name, package in (("pyspark.zip", "one"), ("py4j-0-src.zip", "other")):
        importer = zipimport.zipimporter(str(library / name))
        assert importer.get_source(package) == "VALUE = 1\n"
        assert importer.get_filename(package).endswith("__init__.pyc")
