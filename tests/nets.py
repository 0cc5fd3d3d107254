"""Networks with random weights, for gates and weighers that nobody has taught."""

import numpy as np

from aera.network import Layer, Network
from aera.paper.encoder import Encoder
from aera.paper.features import PaperGate, Projection
from aera.voting.traits import UNTRACED
from aera.voting.weigher import Weigher


def network_of(
    inputs: int,
    hidden: tuple[int, ...] = (6,),
    *,
    outputs: int = 1,
    seed: int = 0,
    reach: float | None = None,
) -> Network:
    """One with such layers; with a `reach`, its training range is -reach to reach."""
    rng, layers, size = np.random.default_rng(seed), list[Layer](), inputs
    for width in hidden:
        layers.append(Layer(rng.normal(size=(width, size)) / 4, *rng.normal(size=(3, width))))
        size = width
    frozen = (rng.normal(size=inputs), rng.normal(size=inputs), rng.uniform(0.5, 2, size=inputs))
    head = (rng.normal(size=(outputs, size)), rng.normal(size=outputs))
    ends = None if reach is None else reach * np.ones(inputs)
    lows = None if ends is None else -ends
    return Network(*frozen, tuple(layers), *head, lows=lows, highs=ends)


def paper_gate_of(encoder: Encoder, seed: int = 0) -> PaperGate:
    """The paper's shape."""
    rng, size = np.random.default_rng(seed), encoder.dimensions
    projection = Projection(rng.normal(size=size), rng.normal(size=(32, size)))
    return PaperGate(network_of(55, (64, 32), seed=seed), projection, encoder)


def weigher_of(reach: float = 100.0, seed: int = 0) -> Weigher:
    """One that needs no trace; a range of 100 holds real traits, so that responses differ."""
    return Weigher(network_of(len(UNTRACED), seed=seed, reach=reach))
