"""`briquette` as a program of its own: start-up, surroundings that lack something, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from briquette_cli.exits import ExitCode
from briquette_cli.main import COMMANDS

HEAVY = ("matplotlib", "rich", "briquette_target_host", "briquette_warp", "briquette_quantize", "briquette_cli.bench")


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom briquette_cli.main import cli\n"
        f"try: cli(['--help'])\nfinally: print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"
    assert "Exit codes:" in done.stdout


def test_help_of_every_command(run):
    for name in COMMANDS:
        assert f"briquette {name}" in run(name, "--help").stdout.replace("Usage: cli ", "Usage: briquette ")


def test_exit_codes_are_documented(run):
    text = run("--help").stdout
    for code in ExitCode:
        assert f"\n    {code.value}  " in text


def test_without_a_compiler(program, tmp_path):
    done = program("demo", "--repeat", 1, CXX="/there/is/no/compiler")
    said = [line for line in done.stdout.splitlines() if "numpy target" in line]
    assert len(said) == 1
    assert "/there/is/no/compiler" in said[0]
    assert "the bound holds for every value" in done.stdout
    assert (tmp_path / "demo-out" / "demo.png").stat().st_size > 0
    assert "error: " in program("plan", "fast", "--target", "host", code=5, CXX="/there/is/no/compiler").stderr


def test_without_any_pack_but_its_own(program, npy):
    off = "briquette-target-host,briquette-warp,briquette-quantize,briquette-lorenzo,briquette-bitpack,briquette-transforms"
    assert "compress" in program("--help", BRIQUETTE_DISABLE_PACKS=off).stdout
    assert "disabled" in program("packs", BRIQUETTE_DISABLE_PACKS=off).stdout
    assert program("compress", npy, "--eb", "1", code=5, BRIQUETTE_DISABLE_PACKS=off).stderr.startswith("error: ")


def test_bad_settings_are_one_line(program):
    done = program("plan", "fast", code=2, BRIQUETTE_CONFIG="/there/is/none.toml")
    assert done.stderr.startswith("error: ")
    assert "/there/is/none.toml" in done.stderr
    assert "compress" in program("--help", BRIQUETTE_CONFIG="/there/is/none.toml").stdout


def test_in_the_c_locale(program, npy, tmp_path):
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    named = tmp_path / "d\u00e9riv\u00e9.npy"
    npy.rename(named)
    program("compress", named, "--eb", "1e-2", "--target", "numpy", **plain)
    assert (tmp_path / "d\u00e9riv\u00e9.npy.bq").exists()
    program("stages", **plain)
    program("info", tmp_path / "d\u00e9riv\u00e9.npy.bq", **plain)
    assert program("info", tmp_path / "\u00e9.bq", code=2, **plain).stderr.startswith("error: ")


def test_a_reader_that_has_enough_is_no_fault():
    end, begin = os.pipe()
    os.close(end)
    done = subprocess.run([sys.executable, "-m", "briquette_cli.main", "stages"], stdout=begin, stderr=subprocess.PIPE, text=True)
    os.close(begin)
    assert done.stderr == ""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_terminated_run_leaves_no_file(npy, tmp_path):
    code = (
        "import os, sys, time\n"
        "from briquette_cli import main\n"
        "def slow(a, b): print('writing', flush=True); time.sleep(60)\n"
        "os.replace = slow\n"
        f"sys.argv[1:] = ['compress', {str(npy)!r}, '--eb', '1', '--target', 'numpy']\n"
        "main.main()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "writing\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=30) == 143
    child.stdout.close()
    assert os.listdir(tmp_path) == ["field.npy"]
