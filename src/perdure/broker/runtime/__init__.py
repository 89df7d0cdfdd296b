"""What every part stands on: the loop's seam, shares of a turn, rates, unexpected errors."""
