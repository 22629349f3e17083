"""What a batch costs on the device: `L = a + b·rows + c·tokens`, seeded by validation, learnt online.

`a` and `c` are fitted by decayed least squares on relative errors, robust against outliers. Rows and
tokens are collinear in practice, so `b` keeps its validated value. The fit is slow on purpose; a scale on
top of it follows the machine's speed of the moment (a noisy neighbour, a hot chip) within some dozen
batches. Two further guards: a margin (p95 of recent underestimates) and an additive-increase,
multiplicative-decrease cap on batch sizes that takes over when predictions fail.
"""

from __future__ import annotations

from collections import deque

from serving.contract import CostCurve

_DECAY = 0.995
_PRIOR_POINTS = (8.0, 512.0)
_PRIOR_WEIGHT = 2.0
_GUESS = CostCurve(a_ms=5.0, b_ms_per_row=0.0, c_ms_per_token=0.25)
_GUESS_WEIGHT = 0.05
_TRUSTED_AFTER = 20
_REFRESH_EVERY = 16
_FAILED_RATIO = 1.5
_GUARD_CUT = 0.7
_GUARD_STEP = 0.02
_GUARD_FLOOR = 0.05
_SCALE_STEP = 0.1
_SCALE_BOUNDS = (0.25, 8.0)
_LEAST_S = 1e-6
_HANDLING_S = 3e-4
"""What a batch costs around the device (building, handing over), which no measurement of it contains."""


class CostModel:
    """Predicts the device time of a batch and learns from every batch that ran. Times in seconds."""

    def __init__(self, curve: CostCurve | None = None) -> None:
        seed = curve or _GUESS
        self._a, self._b, self._c = seed.a_ms / 1e3, seed.b_ms_per_row / 1e3, seed.c_ms_per_token / 1e3
        self._prior = self._moments_of_prior(_PRIOR_WEIGHT if curve else _GUESS_WEIGHT)
        self._moments = [0.0] * 5
        self._errors: deque[float] = deque(maxlen=256)
        self._error_p95 = self._margin = self._seeded_margin(curve)
        self._observations = 0
        self._is_seeded = curve is not None
        self.revision = 0
        """Grows with every batch learnt from."""
        self._tokens_per_row = 1.0
        self._scale = 1.0
        self.guard = 1.0
        """Factor on batch sizes, 0.05..1: below 1 after predictions failed."""

    @property
    def is_trusted(self) -> bool:
        """False while the model is a guess: no request is refused because of it."""
        return self._is_seeded or self._observations >= _TRUSTED_AFTER

    @property
    def error_p95(self) -> float:
        """95th percentile of the relative prediction error, absolute value."""
        return self._error_p95

    @property
    def curve(self) -> CostCurve:
        """The current fit in the contract's words."""
        p95_ms = self._error_p95 * self.predict_s(1, int(_PRIOR_POINTS[1])) * 1e3
        return CostCurve(
            a_ms=self._scale * self._a * 1e3,
            b_ms_per_row=self._scale * self._b * 1e3,
            c_ms_per_token=self._scale * self._c * 1e3,
            residual_p95_ms=p95_ms,
        )

    def predict_s(self, rows: int, tokens: int) -> float:
        return self._scale * (self._a + self._b * rows + self._c * tokens)

    def charge_s(self, rows: int, tokens: int, batch_rows: int) -> float:
        """A work's part of a full batch of `batch_rows` rows."""
        return self._scale * (self._b * rows + self._c * tokens + self._a * rows / batch_rows)

    def marginal_s(self, rows: int, tokens: int) -> float:
        """What these rows add to a batch that runs anyway."""
        return self._scale * (self._b * rows + self._c * tokens)

    def margin_s(self, predicted_s: float) -> float:
        """Time to keep free behind a prediction: p95 of recent underestimates."""
        return predicted_s * self._margin

    def tokens_within(self, seconds: float) -> float:
        """The largest batch, in tokens, predicted to end within `seconds`; may be 0 or infinite."""
        per_token = self._per_token_s()
        if per_token <= 0.0:
            return float("inf") if self._scale * self._a <= seconds else 0.0
        return max(0.0, (seconds - self._scale * self._a) / per_token)

    def efficient_tokens(self, share: float) -> float:
        """The smallest batch, in tokens, that reaches `share` of the asymptotic throughput."""
        per_token = self._per_token_s()
        if per_token <= 0.0:
            return float("inf")
        return share / (1.0 - share) * (self._scale * self._a + _HANDLING_S) / per_token

    def learn(self, rows: int, tokens: int, execute_s: float) -> None:
        """One batch ran alone for `execute_s` (interruptions excluded)."""
        self.revision += 1
        execute_s = max(execute_s, _LEAST_S)
        predicted = max(self.predict_s(rows, tokens), _LEAST_S)
        error = (execute_s - predicted) / predicted
        self._guard_against(execute_s / predicted)
        trust = self._trust_in(error)
        self._observe(rows, tokens, execute_s, trust)
        self._fit()
        self._follow(rows, tokens, execute_s, trust)
        self._remember(error)
        self._tokens_per_row += 0.05 * (tokens / max(rows, 1) - self._tokens_per_row)

    def _per_token_s(self) -> float:
        return self._scale * (self._c + self._b / max(self._tokens_per_row, 1.0))

    def _moments_of_prior(self, weight: float) -> list[float]:
        moments = [0.0] * 5
        for tokens in _PRIOR_POINTS:
            _add(moments, tokens, self._a + self._c * tokens, weight)
        return moments

    def _seeded_margin(self, curve: CostCurve | None) -> float:
        if curve is None:
            return 0.5
        middle_ms = (self._a + self._c * _PRIOR_POINTS[1]) * 1e3
        return min(0.5, max(0.05, curve.residual_p95_ms / max(middle_ms, 1e-3)))

    def _trust_in(self, error: float) -> float:
        """Huber weight: far outliers (a page fault, a noisy neighbour) pull less, never nothing."""
        if not self.is_trusted:
            return 1.0
        bound = max(3.0 * self._error_p95, 0.1)
        return min(1.0, bound / max(abs(error), 1e-9))

    def _observe(self, rows: int, tokens: int, execute_s: float, trust: float) -> None:
        self._moments = [moment * _DECAY for moment in self._moments]
        _add(self._moments, float(tokens), max(execute_s - self._b * rows, _LEAST_S), trust)

    def _fit(self) -> None:
        s0, s1, s2, y0, y1 = (data + prior for data, prior in zip(self._moments, self._prior, strict=True))
        spread = s0 * s2 - s1 * s1
        self._c = (s0 * y1 - s1 * y0) / spread if spread > 1e-12 * s0 * s2 else y1 / s2
        self._a = (y0 - self._c * s1) / s0
        if self._a < 0.0:
            self._a, self._c = 0.0, y1 / s2
        elif self._c < 0.0:
            self._a, self._c = y0 / s0, 0.0

    def _follow(self, rows: int, tokens: int, execute_s: float, trust: float) -> None:
        """Move the scale towards what the fit still gets wrong."""
        ratio = execute_s / max(self._a + self._b * rows + self._c * tokens, _LEAST_S)
        moved = self._scale + _SCALE_STEP * trust * (ratio - self._scale)
        self._scale = min(_SCALE_BOUNDS[1], max(_SCALE_BOUNDS[0], moved))

    def _remember(self, error: float) -> None:
        self._errors.append(error)
        self._observations += 1
        if self._observations % _REFRESH_EVERY == 0:
            ordered = sorted(self._errors)
            self._margin = max(0.02, _p95(ordered))
            self._error_p95 = _p95(sorted(abs(each) for each in ordered))

    def _guard_against(self, ratio: float) -> None:
        if self.is_trusted and ratio > _FAILED_RATIO:
            self.guard = max(_GUARD_FLOOR, self.guard * _GUARD_CUT)
        else:
            self.guard = min(1.0, self.guard + _GUARD_STEP)


def _add(moments: list[float], tokens: float, seconds: float, trust: float) -> None:
    """Weighted by 1/y², so that the fit minimises relative, not absolute, errors."""
    weight = trust / max(seconds, _LEAST_S) ** 2
    moments[0] += weight
    moments[1] += weight * tokens
    moments[2] += weight * tokens * tokens
    moments[3] += weight * seconds
    moments[4] += weight * tokens * seconds


def _p95(ordered: list[float]) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
