"""The demo: the flights that left New York in 2013, counted per origin, carrier and hour."""
