"""The real data sets: downloaded from their official sources and converted to the files that the readers take."""
