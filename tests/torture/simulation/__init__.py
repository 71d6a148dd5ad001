"""The whole daemon in a simulation: one seed is one run, with faults everywhere.

Real: loop, desks, node, journal, pool, scheduler, policies, and the logic of workers.
Modelled: time, the network, the disk, processes, launchers and clients.
"""
