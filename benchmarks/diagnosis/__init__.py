"""Does a diagnosis say what was put into a table?"""
