"""Who may do what: roles on the site and on clusters, and the one gate that asks for them."""
