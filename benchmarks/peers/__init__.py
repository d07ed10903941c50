"""The libraries that tvmconv is compared with, one file each.

Each file has ``prepare(problem, arrays) -> call`` and ``to_numpy(result, problem)``, the result of such a call as a
NumPy array of ``problem.output_shape``.
"""


class UnsupportedError(Exception):
    """A problem that a library has no call for."""
