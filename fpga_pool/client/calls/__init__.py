"""Parts of the calls of the REST API, of which `client.api` is made."""
