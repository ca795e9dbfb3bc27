"""Which data sets hold pictures that are decoded natively."""
