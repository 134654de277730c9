"""Access control: roles on the site and on clusters, and the one gate that checks them."""
