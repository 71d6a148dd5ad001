"""Plans for batches of jobs whose data must be transferred first (zhao-2018). Pure.

A *job* is computed on an *accelerator* after its data went from a *requester* through
its egress link and the ingress link of the accelerator's *responder*. The planners are
in `planners.PLANNERS`; `executor` checks what they return.
"""
