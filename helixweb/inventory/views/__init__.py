"""Pages of the inventory: parse, one service call, render."""
