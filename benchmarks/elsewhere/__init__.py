"""Races on problems that others wrote and published as packages, against the policies that come with them."""
