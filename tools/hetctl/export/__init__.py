"""Files made of the daemon's records: pictures, traces, scenarios, models, metrics."""
