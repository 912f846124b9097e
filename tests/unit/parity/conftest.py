import pytest

#: Random traces that each policy is compared on, unless --traces says otherwise.
FEW, MANY = 2, 6


@pytest.fixture(scope="session")
def traces(request):
    """How many random traces each policy is compared on."""
    return request.config.getoption("traces") or (MANY if request.config.getoption("long") else FEW)
