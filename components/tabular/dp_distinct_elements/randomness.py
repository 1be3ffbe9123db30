"""Coins and noise: repeatable from a seed, or secret.

Coins of sample and hold are keyed hashes of (user, step, rank of the update in that step), so that a user's coins
depend on nobody else's updates. Node noise is keyed by the step at which the node ends, so that asking twice tells
nothing new.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from kfp_methods.components.tabular.dp_distinct_elements.streams import Floats, Stream, ranks
from kfp_methods.components.tabular.privacy import SecureNormals

_COINS, _NODES, _LAPLACE = 1, 2, 3


@dataclass(frozen=True)
class Randomness:
    """key: 16 bytes that all of it follows from; secret: they and the noise come from the operating system."""

    key: bytes
    secret: bool = False

    @classmethod
    def seeded(cls, *seed: int) -> Randomness:
        """The same for the same numbers."""
        return cls(blake2b(repr(seed).encode(), digest_size=16).digest())

    @classmethod
    def secure(cls) -> Randomness:
        """Never the same, and written nowhere."""
        return cls(os.urandom(16), secret=True)

    def coins(self, stream: Stream) -> Floats:
        """A uniform number in [0, 1) for each of the stream's updates, as `stream.updates` orders them [E]."""
        updates = stream.updates
        within = ranks(updates.user * (stream.T + 1) + updates.step)
        digests = b"".join(
            blake2b(f"{step}|{rank}|{stream.names[user]}".encode(), key=self.key, digest_size=8).digest()
            for step, rank, user in zip(updates.step.tolist(), within.tolist(), updates.user.tolist(), strict=True)
        )
        return (np.frombuffer(digests, np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def nodes(self, T: int, stream: int = 0) -> Floats:
        """Standard normal noise of the nodes that end at steps 1 to T [T]; `stream`: of which independent tree."""
        if self.secret:
            return SecureNormals().standard_normal((T,))
        from scipy.special import ndtri

        # One draw of a counter-based generator for each node: it is the same, however many others are asked for.
        bits = np.random.Philox(key=self._key(_NODES, stream)).random_raw(T) >> np.uint64(12)
        return np.asarray(ndtri((bits.astype(np.float64) + 0.5) * 2.0**-52), np.float64)

    def laplace(self, n: int, stream: int = 0) -> Floats:
        """Laplace noise of scale 1 [n]: the difference of two exponential numbers."""
        if self.secret:
            bits = np.frombuffer(os.urandom(16 * n), np.uint64)
        else:
            bits = np.random.Philox(key=self._key(_LAPLACE, stream)).random_raw(2 * n)
        uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        return np.log(uniform[n:]) - np.log(uniform[:n])

    def _key(self, purpose: int, stream: int) -> int:
        digest = blake2b(f"{purpose}|{stream}".encode(), key=self.key, digest_size=16).digest()
        return int.from_bytes(digest, "little")
