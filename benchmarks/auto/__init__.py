"""How ``auto`` was developed and judged: the protocol, its environments and the pages of what came of it."""
