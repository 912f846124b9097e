import pytest

from .bench import Machine, contents, replay


@pytest.fixture
def machine():
    """An agent whose events are replayed at the end of the test: they lead to the same again."""
    made = Machine()
    yield made
    again, said = replay(made.log)
    assert said == [instructions for _, _, instructions in made.log]
    assert contents(again.state) == contents(made.state)
