"""Does what a race of a table of 0 and 1 advises earn what the best policy for such rewards earns?"""
