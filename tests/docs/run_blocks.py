"""``python run_blocks.py``: run the blocks that standard input lists as JSON ([place, language, text]), in order, here."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback

import numpy as np

import briquette as bq

x = (280 + 10 * np.sin(np.arange(60_000) / 40)).astype(np.float32)
np.save("field.npy", x)
namespace: dict[str, object] = {"bq": bq, "np": np, "x": x}
for place, language, text in json.load(sys.stdin):
    if language == "toml":
        with open(place, "w", encoding="utf-8") as file:
            file.write(text)
    elif language == "sh":
        done = subprocess.run(["bash", "-e", "-c", text], text=True, capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"{place}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    else:
        try:
            exec(compile(text, place, "exec"), namespace)
        except Exception:
            sys.exit(f"{place}:\n{traceback.format_exc()}")
