"""The benchmarks: each prints JSON; ratios are measured side by side in one run."""
