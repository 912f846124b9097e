"""L4: the REST API, one module per noun.

=============  ==============================================================================
`app`          the WSGI application
`server`       the server around it, on a loopback address only
`context`      who asks, and where the answers come from
`schemas`      what a request body may be
`errors`       which error becomes which status
`views`        objects as JSON
=============  ==============================================================================
"""
