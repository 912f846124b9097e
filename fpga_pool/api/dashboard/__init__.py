"""The web dashboard of the pool: a page of static files, served by the API, that uses only the REST API."""
