"""Settings: environment over file over defaults, and bad values named with their key and source."""

from __future__ import annotations

from pathlib import Path

import pytest

from briquette import settings
from briquette.errors import UsageError
from briquette.settings import Settings, config_path, load


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text('disable_packs = ["a", " b "]\ntarget = "host"\nthreads = 4\ncache_dir = "/var/tmp/kernels"\n')
    return path


def test_defaults(tmp_path: Path) -> None:
    assert load({"HOME": str(tmp_path)}) == Settings((), None, None, None)


def test_file(config: Path) -> None:
    assert load({"BRIQUETTE_CONFIG": str(config)}) == Settings(("a", "b"), "host", 4, Path("/var/tmp/kernels"))


def test_environment_wins(config: Path) -> None:
    found = load(
        {
            "BRIQUETTE_CONFIG": str(config),
            "BRIQUETTE_DISABLE_PACKS": "c, d,",
            "BRIQUETTE_TARGET": " cuda ",
            "BRIQUETTE_NUM_THREADS": "2",
            "BRIQUETTE_CACHE_DIR": "/elsewhere",
        }
    )
    assert found == Settings(("c", "d"), "cuda", 2, Path("/elsewhere"))


def test_an_empty_variable_is_not_set(config: Path) -> None:
    assert load({"BRIQUETTE_CONFIG": str(config), "BRIQUETTE_TARGET": "", "BRIQUETTE_NUM_THREADS": " "}).threads == 4


def test_environ_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIQUETTE_NUM_THREADS", "7")
    assert load().threads == 7


def test_where_the_file_is_looked_for(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert config_path({"HOME": home}) == tmp_path / ".config" / "briquette" / "config.toml"
    assert config_path({"HOME": home, "XDG_CONFIG_HOME": "/etc/xdg"}) == Path("/etc/xdg/briquette/config.toml")
    assert config_path({"HOME": home, "XDG_CONFIG_HOME": "relative"}) == tmp_path / ".config" / "briquette" / "config.toml"
    assert config_path({"HOME": home, "BRIQUETTE_CONFIG": "x.toml"}) == Path("x.toml")


def test_the_file_in_the_usual_place(tmp_path: Path) -> None:
    (tmp_path / "briquette").mkdir()
    (tmp_path / "briquette" / "config.toml").write_text("threads = 3")
    assert load({"XDG_CONFIG_HOME": str(tmp_path)}).threads == 3


def test_a_changed_file_is_read_again(config: Path) -> None:
    env = {"BRIQUETTE_CONFIG": str(config)}
    assert load(env).threads == 4
    config.write_text("threads = 16")
    assert load(env).threads == 16


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load({"BRIQUETTE_CACHE_DIR": "~/kernels"}).cache_dir == tmp_path / "kernels"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("threads = 0", "setting threads = 0 from {}: it must be a whole number, 1 to 1024"),
        ("threads = 1025", "setting threads = 1025 from {}: it must be a whole number, 1 to 1024"),
        ("threads = 2.0", "setting threads = 2.0 from {}"),
        ("threads = true", "setting threads = True from {}"),
        ('target = ""', "setting target = '' from {}: it must be a name"),
        ("target = 3", "setting target = 3 from {}"),
        ("disable_packs = [1]", "from {}: it must be a list of distribution names"),
        ("disable_packs = 1", "from {}: it must be a list of distribution names"),
        ("cache_dir = 1", "from {}: it must be the path of a directory"),
        ('cache_dir = "a\\u0000b"', "from {}: it must be the path of a directory"),
        ("colour = 1", "unknown setting 'colour' in {}; known: disable_packs, target, threads, cache_dir"),
        ("= 3", "the configuration file {} is not valid TOML"),
    ],
)
def test_bad_files(config: Path, text: str, said: str) -> None:
    config.write_text(text)
    with pytest.raises(UsageError) as caught:
        load({"BRIQUETTE_CONFIG": str(config)})
    assert said.format(config) in str(caught.value)


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "99999999999", "٣x"])
def test_bad_thread_counts_in_the_environment(value: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"setting threads = .* from BRIQUETTE_NUM_THREADS"):
        load({"HOME": str(tmp_path), "BRIQUETTE_NUM_THREADS": value})


def test_a_named_file_must_exist_and_be_readable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"BRIQUETTE_CONFIG names .*absent\.toml, which does not exist"):
        load({"BRIQUETTE_CONFIG": str(tmp_path / "absent.toml")})
    with pytest.raises(UsageError, match="cannot be read"):
        load({"BRIQUETTE_CONFIG": str(tmp_path)})
    (tmp_path / "latin.toml").write_bytes(b'target = "\xff"')
    with pytest.raises(UsageError, match="cannot be read"):
        load({"BRIQUETTE_CONFIG": str(tmp_path / "latin.toml")})


def test_every_key_and_variable_is_documented() -> None:
    for key, (variable, _) in settings._KEYS.items():
        assert f"\n{key} " in (settings.__doc__ or "")
        assert variable in (settings.__doc__ or "")
