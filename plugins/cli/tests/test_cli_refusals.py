"""What cannot work ends with a message, the right exit code, and no file left behind."""

from __future__ import annotations

import os

import numpy as np
import pytest


@pytest.fixture
def archive(run, npy, tmp_path):
    run("compress", npy, "--eb", "1e-2", "--target", "numpy")
    return tmp_path / "field.npy.bq"


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_raw_file_of_the_wrong_size_is_refused_with_both_numbers(run, tmp_path, extra):
    source = tmp_path / "raw.bin"
    source.write_bytes(bytes(4 * (600 + extra)))
    text = run("compress", source, "--dtype", "float32", "--shape", "20,30", "--eb", "1", code=2).stderr
    assert f"{4 * (600 + extra):,}" in text
    assert "2,400" in text
    assert os.listdir(tmp_path) == ["raw.bin"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--eb", "-1"], "'-1'"),
        (["--eb", "nan"], "'nan'"),
        (["--eb", "inf"], "'inf'"),
        (["--eb", "1e-400"], "'1e-400'"),
        (["--eb", "small"], "'small'"),
        ([], "--eb"),
        (["--eb", "1", "--mode", "percent"], "percent"),
        (["--eb", "1", "--fusion", "on"], "on"),
        (["--eb", "1", "--threads", "0"], "0"),
        (["--eb", "1", "--dtype", "float32"], "--dtype"),
        (["--eb", "1", "--pipeline", "there/is/none.toml"], "none.toml"),
    ],
)
def test_usage(run, npy, tmp_path, args, says):
    assert says in run("compress", npy, *args, code=2).stderr
    assert os.listdir(tmp_path) == ["field.npy"]


@pytest.mark.parametrize(
    "args",
    [["--dtype", "float31"], ["--dtype", "O"], ["--dtype", "f4", "--shape", "3,x,y"], ["--dtype", "f4", "--shape", "-3"], []],
)
def test_usage_of_raw_files(run, tmp_path, args):
    source = tmp_path / "raw.bin"
    source.write_bytes(bytes(12))
    run("compress", source, "--eb", "1", *args, code=2)


@pytest.mark.parametrize(
    ("array", "remedy"),
    [
        (np.arange(9) * 1j, "x.view(numpy.float64)"),
        (np.zeros(9, "M8[s]"), "x.view(numpy.int64)"),
        (np.zeros(9, "V2"), "say --dtype bfloat16"),
        (np.zeros(9, "V3"), "supported are"),
    ],
    ids=["complex", "datetime", "two bytes", "three bytes"],
)
def test_inputs_no_pipeline_takes(run, tmp_path, array, remedy):
    source = tmp_path / "other.npy"
    np.save(source, array)
    assert remedy in run("compress", source, "--eb", "1", code=2).stderr


def test_floating_point_values_need_a_bound(run, npy):
    assert "give --eb" in run("compress", npy, code=2).stderr


@pytest.mark.parametrize(
    "args",
    [["--pipeline", "fsat"], ["--target", "abacus"], ["--pipeline", "mine.toml"]],
    ids=["preset", "target", "stage"],
)
def test_what_is_not_installed(run, npy, tmp_path, args, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('[[stage]]\nuse = "no-such-pack:thing"\n')
    text = run("compress", npy, "--eb", "1", *args, code=5).stderr
    assert any(name in text for name in ("fsat", "abacus", "no-such-pack"))
    assert not (tmp_path / "field.npy.bq").exists()


@pytest.mark.parametrize("command", ["decompress", "info", "verify"])
def test_damaged_archives(run, archive, tmp_path, command):
    whole = archive.read_bytes()
    flipped = bytearray(whole)
    flipped[-1 if command != "info" else 60] ^= 0x10
    for damaged in (b"", b"not an archive" * 20, whole[:-1], whole + b"\0", bytes(flipped)):
        archive.write_bytes(damaged)
        output = ["-o", tmp_path / "back.npy"] if command == "decompress" else []
        run(command, archive, *output, code=3)
    assert sorted(os.listdir(tmp_path)) == ["field.npy", "field.npy.bq"]


def test_damaged_npy(run, npy):
    whole = npy.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], b"\x93NUMPY\x01\x00\xff\xff{"):
        npy.write_bytes(damaged)
        run("compress", npy, "--eb", "1", code=3)


def test_pickles_are_not_loaded(run, tmp_path):
    source = tmp_path / "objects.npy"
    np.save(source, np.array([{}], dtype=object), allow_pickle=True)
    run("compress", source, "--eb", "1", code=2)


def test_existing_outputs_are_kept_without_force(run, npy, archive, tmp_path):
    before = archive.read_bytes()
    assert "--force" in run("compress", npy, "--eb", "1", code=2).stderr
    assert "--force" in run("decompress", archive, code=2).stderr
    assert archive.read_bytes() == before
    run("compress", npy, "--eb", "1", "--force")
    assert archive.read_bytes() != before


def test_the_input_is_never_the_output(run, npy, archive, tmp_path):
    before = npy.read_bytes()
    os.link(npy, tmp_path / "link.npy")
    assert "is the input" in run("compress", npy, "--eb", "1", "-o", npy, "--force", code=2).stderr
    assert "is the input" in run("compress", npy, "--eb", "1", "-o", tmp_path / "link.npy", "--force", code=2).stderr
    assert "is the input" in run("decompress", archive, "-o", archive, "--force", code=2).stderr
    assert npy.read_bytes() == before


@pytest.mark.parametrize("output", ["", "missing/out.bq"])
def test_outputs_that_cannot_be(run, npy, tmp_path, output):
    run("compress", npy, "--eb", "1", "-o", tmp_path / output, code=2)


def test_a_failed_write_leaves_nothing_and_keeps_what_was_there(run, npy, archive, tmp_path, monkeypatch):
    before = archive.read_bytes()

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert "No space left" in run("compress", npy, "--eb", "1", "--force", code=1).stderr
    assert archive.read_bytes() == before
    assert "No space left" in run("decompress", archive, "-o", tmp_path / "back.npy", code=1).stderr
    assert sorted(os.listdir(tmp_path)) == ["field.npy", "field.npy.bq"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is not there")
def test_devices_are_written_to(run, npy):
    run("compress", npy, "--eb", "1", "-o", "/dev/null")
    assert "No space left" in run("compress", npy, "--eb", "1", "-o", "/dev/full", code=1).stderr


def test_debug_shows_the_traceback_wherever_it_stands(npy):
    from click.testing import CliRunner

    from briquette_cli.main import cli

    for args in (["--debug", "info", str(npy)], ["info", str(npy), "--debug"]):
        result = CliRunner().invoke(cli, args)
        assert result.exit_code == 3
        assert "Traceback" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("content", [b"just some text\n", b"PK\x03\x04zip", b""], ids=["text", "zip", "empty"])
def test_what_is_no_npy_file_is_said_to_be_none(run, npy, content):
    npy.write_bytes(content)
    for args in (["compress", npy, "--eb", "1"], ["bench", npy, "--target", "numpy"]):
        assert "is not a .npy file" in run(*args, code=3).stderr


def test_text_that_speaks_of_objects_is_not_taken_for_them(run, npy):
    npy.write_bytes(b"an object is not a field")
    assert "convert it" not in run("compress", npy, "--eb", "1", code=3).stderr


def test_object_arrays_are_said_how_to_convert(run, npy):
    np.save(npy, np.array([{}], dtype=object), allow_pickle=True)
    assert "holds Python objects; convert it" in run("compress", npy, "--eb", "1", code=2).stderr


@pytest.mark.parametrize("command", ["compress", "decompress", "info", "verify", "bench"])
def test_files_that_are_not_there(run, tmp_path, command):
    assert "none.npy" in run(command, tmp_path / "none.npy", code=2).stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_files_that_may_not_be_read(run, npy):
    npy.chmod(0)
    run("compress", npy, "--eb", "1", code=2)


def test_a_pipeline_file_of_another_name_is_explained(run, npy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.tml").write_text('[[stage]]\nuse = "zigzag"\n')
    assert "must end in .toml" in run("compress", npy, "--eb", "1", "--pipeline", "mine.tml", code=2).stderr


def test_write_errors_name_the_destination(run, npy, tmp_path, monkeypatch):
    def refused(source, target):
        raise PermissionError(13, "Permission denied", str(source), None, str(target))

    monkeypatch.setattr(os, "replace", refused)
    said = run("compress", npy, "--eb", "1", code=1).stderr
    assert f"{tmp_path / 'field.npy.bq'}: cannot write: Permission denied" in said
    assert ".tmp" not in said


def test_force_that_fails_is_usage():
    from briquette.errors import FusionError
    from briquette_cli.exits import ExitCode, exit_code

    assert exit_code(FusionError("a | b: no")) is ExitCode.USAGE


def test_the_environment_is_named_where_it_asks_for_nonsense(run, monkeypatch):
    monkeypatch.setenv("BRIQUETTE_FUSION", "on")
    assert "BRIQUETTE_FUSION" in run("plan", "fast", "--target", "numpy", code=2).stderr


@pytest.mark.parametrize("args", [["bench"], ["demo"], ["cache", "warm"]], ids=" ".join)
def test_without_presets(run, monkeypatch, args):
    from briquette import discovery

    monkeypatch.setattr(discovery.Registry, "presets", lambda self: ())
    assert "no preset is installed" in run(*args, "--target", "numpy", code=5).stderr


def test_a_missed_bound_is_told_in_words(run, npy, tmp_path, monkeypatch):
    import briquette as bq
    from briquette.bounds import BoundReport

    monkeypatch.setattr(bq, "verify", lambda *_: bq.VerifyReport(True, 0.01, BoundReport(1, 2, 0.5, 7, 40.0)))
    said = run("compress", npy, "--eb", "1e-2", "--check", code=4).stderr
    assert "misses the bound 0.01: 1 value beyond the bound, 2 special values (NaN, infinity) changed" in said
    assert "the first at index 7; largest error 0.5; nothing was written" in said
    assert "BoundReport" not in said
    assert os.listdir(tmp_path) == ["field.npy"]


def test_messages_keep_their_lines(run, monkeypatch):
    from briquette import discovery
    from briquette.errors import CompileError

    def fails(self, name):
        raise CompileError("it does not compile:\n  12 | int x = ;  \n     |         ^\n")

    monkeypatch.setattr(discovery.Registry, "preset", fails)
    said = run("plan", "fast", code=1).stderr
    assert said == "error: it does not compile:\n  12 | int x = ;\n     |         ^\n"


@pytest.mark.parametrize("args", [[], ["cache"]], ids=["briquette", "cache"])
def test_a_group_alone_shows_its_help(args):
    from click.testing import CliRunner

    from briquette_cli.main import cli

    alone, asked = (CliRunner().invoke(cli, [*args, *more]) for more in ([], ["--help"]))
    assert (alone.exit_code, asked.exit_code) == (2, 0)
    assert alone.stderr == asked.stdout
    assert "\n  -h, --help" in alone.stderr


def test_a_cache_that_may_not_be_cleaned(run, tmp_path, monkeypatch):
    from pathlib import Path

    from briquette.cache import Cache, cache_key

    monkeypatch.setenv("BRIQUETTE_CACHE_DIR", str(tmp_path))
    Cache.from_environment().put(cache_key({"a": "b"}), b"code")

    def refused(self, missing_ok=False):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refused)
    said = run("cache", "clean", code=1).stderr
    assert str(tmp_path) in said
    assert "Permission denied" in said
