import pytest

from .bench import Machine, contents, replay


@pytest.fixture
def machine():
    """Yield a machine; at the end of the test its events are replayed and must give the same instructions and state."""
    made = Machine()
    yield made
    again, said = replay(made.log)
    assert said == [instructions for _, _, instructions in made.log]
    assert contents(again.state) == contents(made.state)
