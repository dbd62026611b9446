"""Models over the points of a domain, and the algebra of conditioning them."""
