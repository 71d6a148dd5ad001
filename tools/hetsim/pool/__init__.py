"""`hetsim pool`: a pool of nodes in modelled time.

Placing, re-placing and the order and pace of transfers are the live pool's own code
(`hetpool.placing`, `hetpool.broker.racks`, `hetpool.files.transfers`); machines and links are models.
"""
