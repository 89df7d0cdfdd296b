"""What the broker tells of itself: gauges, ``$SYS``, its clock."""
