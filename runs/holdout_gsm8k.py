"""Frozen-threshold generation on 300 untouched gsm8k questions; see holdout_live.py."""

from holdout_live import run

if __name__ == "__main__":
    run("gsm8k", 300)
