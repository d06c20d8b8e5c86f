"""Generated programs that try the oracle: functions with gaps, and ill-conditioned ones evaluated in other ways."""
