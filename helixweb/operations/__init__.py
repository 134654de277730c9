"""Installing, running and keeping a site: `up`, `doctor`, `backup`, `restore`, readiness.

What `up` needs to look after processes knows no Django (`supervisor`, `children`, `data_folder`);
the rest may use every app of the site. Only `helixweb.urls` and the command line come here.
"""
