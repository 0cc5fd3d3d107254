"""Frozen-threshold generation on 100 untouched CommonsenseQA questions; see holdout_live.py."""

from holdout_live import run

if __name__ == "__main__":
    run("csqa", 100)
