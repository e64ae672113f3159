"""A predictor, a transform and a coder for briquette, written as plain CUDA."""

from importlib.resources import files

from briquette.packinfo import PackInfo

PACK = PackInfo(python_api=">=1,<2", policy_api=">=1,<2")
PRESET = files(__name__) / "warp-striped.toml"
