"""A MY-ROLE for briquette."""

from importlib.resources import files

from briquette.packinfo import PackInfo

PACK = PackInfo(python_api=">=1,<2", policy_api=">=1,<2")
PRESET = files(__name__) / "pipeline.toml"
