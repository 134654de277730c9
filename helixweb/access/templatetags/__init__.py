"""Tags by which pages ask what whoever reads them may do."""
