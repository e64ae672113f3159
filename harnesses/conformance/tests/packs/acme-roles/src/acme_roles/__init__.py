"""Stages of several roles."""

from briquette.packinfo import PackInfo

PACK = PackInfo(python_api=">=1,<2", policy_api=">=1,<2")
