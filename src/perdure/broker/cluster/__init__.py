"""What a broker does about the other nodes of its log, and about nothing where there are none."""
