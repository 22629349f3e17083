"""Measuring: histograms on the hot path, frames once a second, one collector that merges them."""
