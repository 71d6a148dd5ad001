"""A pool: hetd on several machines, carried by Dask.distributed (docs/pool.md).

Jobs are placed and ordered by hetd's own planners; Dask carries jobs, inputs, results and
membership between the machines. Only `hetpool.engine` imports `distributed`.
"""
