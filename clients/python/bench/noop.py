"""Jobs a second of one Python worker process with a handler that does nothing."""
