from fpga_pool.core.dispatch import Load, QueueEntry, Run, Wait, next_action


def entry(order: int, function: str = "aes", *, staged: bool) -> QueueEntry:
    return QueueEntry(key=f"job-{order}", order=order, function=function, staged=staged)


def test_waits_with_an_empty_queue():
    assert next_action([], "aes") == Wait()


def test_runs_the_staged_entry_of_lowest_order():
    first, second = entry(1, staged=True), entry(2, staged=True)
    assert next_action([second, first], "aes") == Run(first)


def test_runs_a_staged_entry_ahead_of_one_that_still_moves():
    staged = entry(2, staged=True)
    assert next_action([entry(1, staged=False), staged], "aes") == Run(staged)


def test_loads_the_function_of_the_staged_entry_of_lowest_order():
    queue = [entry(1, "dnn", staged=True), entry(2, "aes", staged=True)]
    assert next_action(queue, "aes") == Load("dnn")


def test_staged_entry_decides_what_is_loaded_rather_than_the_head():
    queue = [entry(1, "dnn", staged=False), entry(2, "sha256", staged=True)]
    assert next_action(queue, "aes") == Load("sha256")


def test_loads_ahead_what_the_head_needs_when_nothing_is_staged():
    queue = [entry(2, "aes", staged=False), entry(1, "dnn", staged=False)]
    assert next_action(queue, "aes") == Load("dnn")


def test_waits_when_the_function_of_the_head_is_loaded():
    queue = [entry(1, "aes", staged=False), entry(2, "dnn", staged=False)]
    assert next_action(queue, "aes") == Wait()


def test_loads_into_an_empty_slot():
    assert next_action([entry(1, staged=False)], None) == Load("aes")


def test_a_slot_without_work_loads_what_is_expected_to_be_asked_for_once():
    assert next_action([], None, "aes") == Load("aes")
    assert next_action([], "aes", "aes") == Wait()


def test_work_comes_before_what_is_expected():
    assert next_action([entry(1, "aes", staged=False)], "aes", "dnn") == Wait()
    assert next_action([entry(1, "aes", staged=True)], None, "dnn") == Load("aes")
