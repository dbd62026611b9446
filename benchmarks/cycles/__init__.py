"""Do cycles and smooth drift lose less than exponential forgetting on records that have days?"""
