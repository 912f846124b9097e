import pytest

#: The number of random traces that each policy is compared on, without and with --long, unless --traces is given.
FEW, MANY = 2, 6


@pytest.fixture(scope="session")
def traces(request):
    """Return the number of random traces that each policy is compared on."""
    return request.config.getoption("traces") or (MANY if request.config.getoption("long") else FEW)
