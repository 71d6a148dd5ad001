"""zhao-2018-icc and zhao-2018-tpds: batches of jobs with transfers, re-made."""
