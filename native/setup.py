"""Builds the extension for the stable ABI of CPython 3.11: one wheel for it and for later versions."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "spark_cursor_source_native",
            sources=["src/module.c", "src/columns.c", "src/markers.c"],
            depends=["src/columns.h", "src/librdkafka.h", "src/markers.h"],
            extra_compile_args=[
                "-std=c11",
                "-O2",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
                "-D_GNU_SOURCE",
            ],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
