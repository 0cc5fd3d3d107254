"""Columns: what tables of policies show, by what was judged and what spending is counted in."""

from collections.abc import Callable

from aera.lab.replay.frontier import Point
from aera.lab.replay.money import PLAIN, Terms, write_money
from aera.lab.replay.trajectory import Trajectories

Cell = Callable[[Point], str]


def table_columns(
    trajectories: Trajectories, terms: Terms = PLAIN, *, means: bool = False
) -> dict[str, Cell]:
    """Headings with what stands below them; with `means`, the paper's score where it is known."""
    quality = _quality(trajectories)
    if means and trajectories.re2_mean is not None:
        quality["re2_mean %"] = lambda point: f"{point.re2_mean:.2f}"
    price, prices = terms.price, terms.prices
    if price is not None and trajectories.grades is not None:
        quality["utility"] = lambda point: f"{point.utility(price):.3f}"
    spend: dict[str, Cell] = {
        "responses": lambda point: f"{point.responses:.2f}",
        "tokens": lambda point: f"{point.tokens:,.0f}",
        "saved %": lambda point: f"{point.token_saving:.1f}",
    }
    if prices is not None:
        spend["money"] = lambda point: write_money(point.money(prices))
    return {"policy": lambda point: point.policy, **quality, **spend}


def _quality(trajectories: Trajectories) -> dict[str, Cell]:
    """Reward, accuracy or agreement, whichever there is."""
    if trajectories.rewarded:
        return {"reward": lambda point: f"{point.reward:.3f}"}
    if trajectories.grades is not None:
        return {"accuracy %": lambda point: f"{point.accuracy:.2f}"}
    return {"agreement %": lambda point: f"{point.agreement:.2f}"}
