"""Make a virtual environment with pip in it: ``python3 tools/make_venv.py DIRECTORY``.

Plain ``python3 -m venv`` fails on a Debian or Ubuntu without the package python3-venv, because they ship `ensurepip`
apart. An environment without pip can still be made there, so pip is then brought in from wherever it can be had.
Standard library only: nothing is installed yet when this runs.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

WHEELS = "/usr/share/python-wheels"  # where Debian's python3-pip-whl puts pip


def run(*command, **options):
    """Run `command` quietly; return whether it succeeded."""
    quiet = subprocess.DEVNULL
    try:
        return subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, check=False, **options).returncode == 0
    except OSError:
        return False


def python_of(where):
    return os.path.join(where, "bin", "python")


def has_pip(where):
    return run(python_of(where), "-m", "pip", "--version")


def by_venv(where):
    run(sys.executable, "-m", "venv", "--clear", where)


def by_virtualenv(where):
    run(sys.executable, "-m", "virtualenv", "--clear", where)


def by_pip_outside(where):
    run(sys.executable, "-m", "venv", "--clear", "--without-pip", where)
    run(sys.executable, "-m", "pip", "--python", python_of(where), "install", "pip")


def by_pip_wheel(where, wheels=WHEELS):
    """Run the pip inside Debian's wheel to install pip."""
    for wheel in sorted(glob.glob(os.path.join(wheels, "pip-*.whl"))):
        run(sys.executable, "-m", "venv", "--clear", "--without-pip", where)
        run(python_of(where), "-m", "pip", "install", "pip", env={**os.environ, "PYTHONPATH": wheel})


def by_debian_archive(where):
    """Fetch Debian's package of that wheel and unpack it in a temporary folder: needs no root and installs nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        if run("apt-get", "download", "python3-pip-whl", cwd=scratch):
            for package in glob.glob(os.path.join(scratch, "*.deb")):
                run("dpkg-deb", "-x", package, scratch)
            by_pip_wheel(where, scratch + WHEELS)


def by_uv(where):
    run("uv", "venv", "--seed", "--clear", "--python", sys.executable, where)


WAYS = (
    ("python -m venv", by_venv),
    ("python -m virtualenv", by_virtualenv),
    ("a venv without pip, filled by the pip outside", by_pip_outside),
    ("Debian's pip wheel in " + WHEELS, by_pip_wheel),
    ("uv venv", by_uv),
    ("Debian's pip wheel through apt-get download", by_debian_archive),
)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: python3 tools/make_venv.py DIRECTORY")
    if sys.version_info < (3, 10):  # noqa: UP036 - older Pythons run this file too
        version = sys.version.split()[0]
        sys.exit(
            f"briquette needs Python 3.10 or newer; {sys.executable} is {version}. Choose another: make PYTHON=python3.11 ..."
        )
    where = os.path.abspath(sys.argv[1])
    for _, make in WAYS:
        make(where)
        if has_pip(where):
            return
    shutil.rmtree(where, ignore_errors=True)
    tried = "\n".join(f"  - {what}" for what, _ in WAYS)
    sys.exit(
        f"No virtual environment with pip could be made by {sys.executable}. Tried:\n{tried}\n"
        "On Debian or Ubuntu: apt-get install python3-venv. Elsewhere: install pip or virtualenv for this Python, "
        "or choose another one: make PYTHON=/path/to/python3 ..."
    )


if __name__ == "__main__":
    main()
