"""What do limits on moves cost, and what is saved by weighing the price of a move?"""
