"""Generated programs that try the oracle: functions with gaps, and ill-conditioned ones with other right evaluations."""
