"""Pages of planning; only its urls import them."""
