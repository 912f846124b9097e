from fpga_pool.sim.engine import Engine


def test_actions_happen_in_the_order_of_their_times_and_then_of_asking():
    engine, seen = Engine(), []
    for time_s, name in [(2.0, "late"), (1.0, "first"), (1.0, "second")]:
        engine.at(time_s, lambda name=name: seen.append((engine.now_s, name)))
    engine.run(10.0)
    assert seen == [(1.0, "first"), (1.0, "second"), (2.0, "late")]


def test_what_is_asked_for_in_the_past_happens_now():
    engine, seen = Engine(), []
    engine.at(3.0, lambda: engine.at(1.0, lambda: seen.append(engine.now_s)))
    engine.run(10.0)
    assert seen == [3.0]


def test_an_action_may_ask_for_others_after_a_while():
    engine, seen = Engine(), []

    def again():
        seen.append(engine.now_s)
        if len(seen) < 3:
            engine.after(0.5, again)

    engine.after(1.0, again)
    engine.run(10.0)
    assert seen == [1.0, 1.5, 2.0]


def test_what_is_due_after_the_end_waits_for_the_next_run():
    engine, seen = Engine(), []
    for time_s in (1.0, 2.0, 3.0):
        engine.at(time_s, lambda: seen.append(engine.now_s))
    engine.run(2.0)
    assert seen == [1.0, 2.0]
    engine.run(3.0)
    assert seen == [1.0, 2.0, 3.0]
