"""The web dashboard of the pool: static files, which the API serves, and a page that uses nothing but the REST API."""
