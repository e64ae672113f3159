"""What cannot work ends with one line, the right exit code, and no file left behind."""

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


@pytest.mark.parametrize("array", [np.arange(9), np.arange(9) > 3, np.arange(9) * 1j], ids=["int64", "bool", "complex"])
def test_inputs_no_float_pipeline_takes(run, tmp_path, array):
    source = tmp_path / "other.npy"
    np.save(source, array)
    run("compress", source, "--eb", "1", code=2)


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
