"""Frozen-threshold generation on 300 untouched gsm8k questions; see holdout_live.py."""

from holdout_live import run
from pools import pools_argument

if __name__ == "__main__":
    run(pools_argument(__doc__ or ""), "gsm8k", 300)
