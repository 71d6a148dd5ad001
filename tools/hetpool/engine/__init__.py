"""The engine of a pool: Dask.distributed behind the seams of `hetpool.seam`.

Only this package imports Dask. Each peculiarity of Dask that the pool depends on has a
comment where it is met, and a test in `tests/pool/test_engine.py`.
"""
