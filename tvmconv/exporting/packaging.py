"""Files by which CMake and pkg-config find an exported library, and the CMake project of its test."""

from __future__ import annotations

from ..isa import Isa
from ..version import __version__
from .archive import ArchiveOptions
from .plan import Plan, packaging_of

_CONFIG = """\
# @NAME@::@NAME@: the archive, with its header.@SHARED_DOC@ Found by: find_package(@NAME@ CONFIG REQUIRED PATHS this/folder)
if(TARGET @NAME@::@NAME@)
  return()
endif()
@FIND@add_library(@NAME@::@NAME@ STATIC IMPORTED)
set_target_properties(@NAME@::@NAME@ PROPERTIES
  IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/@ARCHIVE@"
  INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}"
  INTERFACE_LINK_LIBRARIES "@LIBRARIES@")
@SHARED@"""
_SHARED = """\
add_library(@NAME@::shared SHARED IMPORTED)
set_target_properties(@NAME@::shared PROPERTIES
  IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/@SHARED_FILE@"
  @SHARED_AS@
  INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")
"""
_VERSION = """\
set(PACKAGE_VERSION "@VERSION@")
if(NOT PACKAGE_FIND_VERSION OR PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
"""
_PC = """\
prefix=${pcfiledir}
Name: @NAME@
Description: @WHAT@, by tvmconv
Version: @VERSION@
Cflags: -I${prefix}
Libs: -L${prefix} -l@NAME@ @LINK@
"""
_LISTS = """\
# Builds and runs the test of this library: cmake -S . -B build && cmake --build build && ctest --test-dir build
cmake_minimum_required(VERSION 3.13)
project(@NAME@_smoke C)
enable_testing()
find_package(@NAME@ CONFIG REQUIRED PATHS "${CMAKE_CURRENT_LIST_DIR}" NO_DEFAULT_PATH)
add_executable(@NAME@_smoke smoke.c)
set_target_properties(@NAME@_smoke PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
target_link_libraries(@NAME@_smoke PRIVATE @NAME@::@NAME@ @MATHEMATICS@)
add_test(NAME @NAME@_smoke COMMAND @NAME@_smoke@ARGUMENTS@)
set_tests_properties(@NAME@_smoke PROPERTIES SKIP_RETURN_CODE 77)
"""

_TEST = "CMakeLists.txt"


def packaging(plan: Plan, options: ArchiveOptions) -> dict[str, str]:
    """Return the texts of a bundle's files by name."""
    how = packaging_of(plan.isa)
    threads = {"none": ("", "", ""), "openmp": ("", "gomp", "-lgomp")}
    find, libraries, link = threads.get(
        options.threads, (how.cmake_finds, how.cmake_threads, " ".join(how.thread_flags))
    )
    return _files(
        plan.name,
        plan.isa,
        "Convolution kernels",
        {
            "@FIND@": find,
            "@LIBRARIES@": libraries,
            "@LINK@": link,
            "@SHARED@": _SHARED if options.shared else "",
            "@SHARED_DOC@": " @NAME@::shared: the shared library." if options.shared else "",
            "@ARGUMENTS@": "",
        },
    )


def network_packaging(name: str, isa: Isa, tested: bool) -> dict[str, str]:
    """Return the texts of a network's files by name; `tested`: with the CMake project of its test."""
    how = packaging_of(isa)
    parts = {
        "@FIND@": how.cmake_finds,
        "@LIBRARIES@": ";".join(filter(None, (how.cmake_threads, how.mathematics))),
        "@LINK@": " ".join((*[f"-l{how.mathematics}"] * bool(how.mathematics), *how.thread_flags)),
        "@SHARED@": _SHARED if how.shared else "",
        "@SHARED_DOC@": " @NAME@::shared: the shared library." if how.shared else "",
        "@ARGUMENTS@": ' "${CMAKE_CURRENT_LIST_DIR}/smoke.bin"',
    }
    files = _files(name, isa, "A network", parts)
    return files if tested else {file: text for file, text in files.items() if file != _TEST}


def _files(name: str, isa: Isa, what: str, parts: dict[str, str]) -> dict[str, str]:
    how = packaging_of(isa)
    more = {"@SHARED_FILE@": how.shared, "@SHARED_AS@": how.cmake_shared, "@WHAT@": what, "@VERSION@": __version__}
    more |= {"@ARCHIVE@": how.archive, "@MATHEMATICS@": how.mathematics}

    def filled(text: str) -> str:
        for place, content in (parts | more).items():
            text = text.replace(place, content)
        return text.replace("@NAME@", name).replace("{name}", name)

    return {
        f"{name}Config.cmake": filled(_CONFIG),
        f"{name}ConfigVersion.cmake": filled(_VERSION),
        f"{name}.pc": filled(_PC),
        _TEST: filled(_LISTS),
    }
