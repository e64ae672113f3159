"""Files in, archives out, and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import briquette as bq


def test_npy_comes_back_within_the_bound(run, npy, field, tmp_path):
    run("compress", npy, "--eb", "1e-2")
    run("decompress", tmp_path / "field.npy.bq", "-o", tmp_path / "back.npy")
    back = np.load(tmp_path / "back.npy")
    assert (back.dtype, back.shape) == (field.dtype, field.shape)
    finite = np.isfinite(field)
    error = np.abs(back[finite].astype(np.float64) - field[finite].astype(np.float64))
    assert 0 < error.max() <= 1e-2
    assert np.array_equal(back[~finite].view(np.uint32), field[~finite].view(np.uint32))


@pytest.mark.parametrize("mode", ["abs", "rel", "noa"])
def test_the_text_of_a_bound_gives_the_bytes_of_the_api(run, npy, field, tmp_path, mode):
    run("compress", npy, "--eb", "1e-3", "--mode", mode, "--target", "numpy", "-o", tmp_path / "a.bq")
    assert (tmp_path / "a.bq").read_bytes() == bytes(bq.compress(field, eb=1e-3, mode=mode, target="numpy"))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
def test_raw_files_keep_their_byte_order(run, field, tmp_path, dtype):
    source = tmp_path / "field.bin"
    source.write_bytes(field.astype(dtype).tobytes())
    run("compress", source, "--dtype", dtype, "--shape", "40,50", "--eb", "1e-2", "--target", "numpy")
    source.unlink()
    run("decompress", tmp_path / "field.bin.bq", "--target", "numpy")
    back = np.fromfile(source, dtype).reshape(40, 50)
    assert np.nanmax(np.abs(back.astype(np.float64) - field)) <= 1e-2
    assert np.array_equal(np.isnan(back), np.isnan(field))


def test_pipelines_in_toml(run, run_json, npy, tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(run("presets", "zigzag").stdout + '\n[bound]\neb = 1e-2\nmode = "abs"\n')
    facts = run_json("compress", npy, "--pipeline", mine, "--target", "numpy")
    assert facts["eb"] == 1e-2
    held = run_json("info", tmp_path / "field.npy.bq")
    assert held["stages"][-1]["stage"] == "briquette-bitpack:adaptive-bitplane"


def test_compress_reports(run, run_json, npy, tmp_path):
    facts = run_json("compress", npy, "--eb", "1e-2", "--check", "--target", "numpy")
    archive = Path(facts["output"])
    assert archive == tmp_path / "field.npy.bq"
    assert facts["archive_bytes"] == archive.stat().st_size
    assert facts["original_bytes"] == 40 * 50 * 4
    assert facts["ratio"] == pytest.approx(8000 / facts["archive_bytes"])
    assert facts["outliers"] == 2
    assert 0 < facts["largest_error"] <= 1e-2
    text = run("compress", npy, "--eb", "1e-2", "--force").stdout
    assert f"ratio {facts['ratio']:.2f}" in text


@pytest.mark.parametrize(("option", "wanted", "slack"), [("--target-ratio", 6.0, 0.18), ("--target-psnr", 55.0, 0.5)])
def test_a_bound_is_found_for_a_goal(run, run_json, npy, field, tmp_path, option, wanted, slack):
    out = tmp_path / "found.bq"
    facts = run_json("compress", npy, "-o", out, option, wanted, "--mode", "rel", "--check")
    kind = option.removeprefix("--target-")
    assert abs(facts[kind] - wanted) <= slack
    assert facts["search"]["kind"] == kind
    assert facts["search"]["achieved"] == pytest.approx(facts[kind])
    assert facts["search"]["wanted"] == wanted
    assert facts["search"]["sample_elements"] == field.size
    assert facts["mode"] == "rel"
    assert run_json("info", out)["bound"] == {"mode": "rel", "eb": facts["search"]["bound"]}
    text = run("compress", npy, "-o", out, "--force", option, wanted).stdout
    assert f"for {wanted:g}" in text
    assert "tried" in text


def test_a_goal_out_of_reach_is_a_usage_error_and_leaves_no_file(run, npy, tmp_path):
    out = tmp_path / "none.bq"
    result = run("compress", npy, "-o", out, "--target-ratio", "1e6", code=2)
    assert "ask for no more" in result.stderr
    assert not out.exists()
    assert "give one of" in run("compress", npy, "-o", out, "--target-ratio", "5", "--eb", "1", code=2).stderr


def test_info(run, run_json, npy, tmp_path):
    run("compress", npy, "--eb", "1e-2", "--mode", "rel", "--target", "numpy")
    facts = run_json("info", tmp_path / "field.npy.bq")
    assert facts == bq.info((tmp_path / "field.npy.bq").read_bytes())
    text = run("info", tmp_path / "field.npy.bq").stdout
    assert "range-relative 0.01" in text
    assert "40 x 50" in text
    assert "linear-quantizer" in text


def test_verify_without_and_with_the_original(run, run_json, npy, tmp_path):
    run("compress", npy, "--eb", "1e-2", "--target", "numpy")
    archive = tmp_path / "field.npy.bq"
    assert "not checked" in run("verify", archive).stdout
    assert "bound: kept" in run("verify", archive, npy).stdout
    facts = run_json("verify", archive, npy)
    assert facts["ok"]
    assert facts["bound"]["violations"] == 0
    assert 0 < facts["bound"]["largest_error"] <= facts["eb"] == 1e-2


def test_verify_says_whose_range_a_relative_bound_comes_from(run, npy, field, tmp_path):
    run("compress", npy, "--eb", "1e-2", "--mode", "rel", "--target", "numpy")
    archive, other = tmp_path / "field.npy.bq", tmp_path / "other.npy"
    said = run("verify", archive, npy).stdout
    assert f"= 0.01 x the range of {npy})" in said
    changed = field.copy()
    changed[0, 0] = 400
    np.save(other, changed)
    said = run("verify", archive, other, code=4).stdout
    assert f"= 0.01 x the range of {other}; the archive was made for 0." in said
    assert "from another range" in said
    run("compress", npy, "--eb", "1e-2", "--force", "--target", "numpy")
    assert "the range of" not in run("verify", archive, npy).stdout


def test_verify_against_a_raw_original(run, field, tmp_path):
    source = tmp_path / "field.f32"
    source.write_bytes(field.tobytes())
    run("compress", source, "--dtype", "float32", "--eb", "1e-2", "--target", "numpy")
    assert "bound: kept" in run("verify", tmp_path / "field.f32.bq", source).stdout
    source.write_bytes(field.tobytes()[:-4])
    assert "8,000" in run("verify", tmp_path / "field.f32.bq", source, code=2).stderr


def test_verify_finds_one_value_beyond_the_bound(run, run_json, npy, field, tmp_path):
    run("compress", npy, "--eb", "1e-2", "--target", "numpy")
    field[7, 11] += 0.05
    np.save(tmp_path / "other.npy", field)
    facts = run_json("verify", tmp_path / "field.npy.bq", tmp_path / "other.npy", code=4)
    assert facts["bound"]["violations"] == 1
    assert facts["bound"]["first_violation"] == 7 * 50 + 11
    assert "VIOLATED" in run("verify", tmp_path / "field.npy.bq", tmp_path / "other.npy", code=4).stdout


def test_verify_finds_a_nan_of_another_payload(run_json, run, npy, field, tmp_path):
    run("compress", npy, "--eb", "1e-2", "--target", "numpy")
    field.view(np.uint32)[3, 4] = 0x7FC12345
    np.save(tmp_path / "other.npy", field)
    assert run_json("verify", tmp_path / "field.npy.bq", tmp_path / "other.npy", code=4)["bound"]["specials_changed"] == 1


@pytest.mark.parametrize("shape", [(0,), (0, 3), (), (1,), (1, 121, 2)])
def test_odd_shapes(run, tmp_path, shape):
    source = tmp_path / "odd.npy"
    np.save(source, np.full(shape, 2.5, np.float64))
    run("compress", source, "--eb", "1e-2", "--target", "numpy", "-o", tmp_path / "odd.bq")
    run("decompress", tmp_path / "odd.bq", "-o", tmp_path / "back.npy", "--target", "numpy")
    back = np.load(tmp_path / "back.npy")
    assert (back.shape, back.dtype) == (shape, np.float64)
    assert np.abs(back - 2.5).max(initial=0) <= 1e-2
    run("verify", tmp_path / "odd.bq", source)


@pytest.mark.parametrize(
    ("text", "part"), [("10:20", slice(10, 20)), (":3", slice(3)), ("-5:", slice(-5, None)), ("7:7", slice(7, 7))]
)
def test_a_region_is_the_slice(run, run_json, npy, tmp_path, text, part):
    run("compress", npy, "--eb", "1e-2")
    archive, output = tmp_path / "field.npy.bq", tmp_path / "part.npy"
    whole = bq.decompress(archive.read_bytes())
    facts = run_json("decompress", archive, "--region", text, "-o", output)
    assert np.load(output).tobytes() == whole[part].tobytes()
    assert facts["shape"] == list(whole[part].shape)
    run("decompress", archive, "--flat", text, "-o", output, "--force")
    assert np.load(output).tobytes() == whole.reshape(-1)[part].tobytes()


@pytest.mark.parametrize("text", ["10", "a:b", "1:2:3", "", "1.5:2"])
def test_what_is_no_region_is_refused(run, npy, tmp_path, text):
    run("compress", npy, "--eb", "1e-2")
    for option in ("--region", "--flat"):
        refused = run("decompress", tmp_path / "field.npy.bq", option, text, "-o", tmp_path / "part.npy", code=2)
        assert f"{option} {text!r} is no range of positions" in refused.stderr
    assert not (tmp_path / "part.npy").exists()


def test_point_wise_relative_bounds(run, run_json, npy, field, tmp_path):
    archive = tmp_path / "field.npy.bq"
    text = run("compress", npy, "--eb", "1e-2", "--mode", "pwrel", "--check", "--target", "numpy").stdout
    assert "largest relative error 0.00" in text
    assert archive.read_bytes() == bytes(bq.compress(field, eb=1e-2, mode="pwrel", target="numpy"))
    assert "point-wise relative 0.01\n" in run("info", archive).stdout
    facts = run_json("verify", archive, npy)
    assert 0 < facts["bound"]["largest_error"] <= facts["eb"] == 1e-2
    assert "bound: kept; largest relative error 0.00" in run("verify", archive, npy).stdout
    np.save(tmp_path / "other.npy", field * np.float32(1.03))
    assert run_json("verify", archive, tmp_path / "other.npy", code=4)["bound"]["violations"] == np.isfinite(field).sum()
    plan = run_json("plan", "fast", "--mode", "pwrel", "--target", "numpy")
    assert plan["compress"]["steps"][0]["nodes"][0] == "log-quantizer"
    report = run_json("bench", npy, "--mode", "pwrel", "--pipeline", "fast", "--target", "numpy", "--repeat", "1")
    assert report["inputs"][0]["checks"]["fast"]["bound_kept"]
    refused = run("compress", npy, "--eb", "1", "--mode", "pwrel", "--force", code=2)
    assert "of mode 'pwrel' must be below 1" in refused.stderr


def test_fill_values(run, run_json, field, tmp_path):
    x = field.copy()
    x[5:9] = -9999
    x[20:22] = 1e20
    np.save(tmp_path / "holes.npy", x)
    given = ("--eb", "1e-3", "--mode", "rel", "--pipeline", "masked", "--fill-value", "1e20", "--fill-value", "-9999")
    facts = run_json("compress", tmp_path / "holes.npy", *given, "--check", "--target", "numpy")
    assert facts["eb"] < 0.1
    assert facts["outliers"] == 6 * 50 + 1
    archive = tmp_path / "holes.npy.bq"
    assert archive.read_bytes() == bytes(bq.compress(x, 1e-3, "rel", pipeline="masked", fill_value=(1e20, -9999)))
    assert "fill_values=1e+20 -9999.0" in run("info", archive).stdout
    assert "bound: kept" in run("verify", archive, tmp_path / "holes.npy").stdout
    refused = run("compress", tmp_path / "holes.npy", "--eb", "1", "--fill-value", "1e20", "--force", code=2)
    assert "use one of the presets that do: masked" in refused.stderr


@pytest.mark.parametrize("dtype", ["uint8", "int16", ">i4", "uint64", "bool"])
def test_integers_need_no_bound_and_come_back_as_they_are(run, field, tmp_path, dtype):
    x = np.nan_to_num(np.abs(field) * 10).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    run("compress", tmp_path / "x.npy", "--check")
    run("decompress", tmp_path / "x.npy.bq", "-o", tmp_path / "back.npy")
    back = np.load(tmp_path / "back.npy")
    assert (back.dtype, back.tobytes()) == (x.dtype, x.tobytes())
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    run("compress", tmp_path / "x.bin", "--dtype", dtype, "--shape", "40,50", "--eb", "3", "--check", "-o", tmp_path / "lossy.bq")
    run("verify", tmp_path / "lossy.bq", tmp_path / "x.bin")


def test_bfloat16_in_raw_files_and_in_npy_files_that_do_not_name_it(run, field, tmp_path):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = field.astype(bfloat16)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    run("compress", tmp_path / "x.bin", "--dtype", "bfloat16", "--shape", "40,50", "--eb", "1e-2", "--check")
    np.save(tmp_path / "x.npy", x.view("V2"))
    run("compress", tmp_path / "x.npy", "--dtype", "bfloat16", "--eb", "1e-2", "--check")
    assert (tmp_path / "x.npy.bq").read_bytes() == (tmp_path / "x.bin.bq").read_bytes()
    for original in ("x.bin", "x.npy"):
        run("verify", tmp_path / "x.bin.bq", tmp_path / original)
    run("decompress", tmp_path / "x.bin.bq", "-o", tmp_path / "back.bin")
    back = np.frombuffer((tmp_path / "back.bin").read_bytes(), bfloat16).reshape(40, 50)
    assert np.nanmax(np.abs(back.astype(np.float64) - x.astype(np.float64))) <= 1e-2
    run("plan", "fast", "--dtype", "bfloat16")
