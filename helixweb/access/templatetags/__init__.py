"""Tags by which pages ask what their reader may do."""
