"""Commands on one object or several."""

import pytest

UNKNOWN = "00000000-0000-0000-0000-000000000001"
SLOTS, CARDS = ("node-1/card-0/r0", "node-2/card-0/r0"), ("node-1/card-0", "node-2/card-0")


@pytest.mark.parametrize(
    ("noun", "names", "states"),
    [("slot", SLOTS, ("DRAINED", "EMPTY")), ("card", CARDS, ("out_of_service", "in_service"))],
)
def test_several_are_drained_and_resumed_after_an_error_and_errors_are_counted(run, noun, names, states):
    first, second = names
    for command, state in zip(("drain", "resume"), states, strict=True):
        answer = run(noun, command, first, "node-9", second, "-f", "json")
        assert (answer.status, answer.err.splitlines()[-1]) == (1, "fpga-pool: 1 of 3 failed")
        assert f"no {noun} 'node-9'" in answer.err
        assert [(row["name"], row["state"]) for row in answer.json] == [(first, state), (second, state)]


def test_several_are_a_table_that_fits_a_terminal_with_columns_to_choose(run):
    shown = run("card", "drain", *CARDS)
    assert (shown.status, shown.err) == (0, "")
    assert max(map(len, shown.out.splitlines())) <= 80
    assert [name in shown.out for name in (*CARDS, "| name ", "| Field")] == [True, True, True, False]
    assert run("slot", "drain", *SLOTS, "--reason", "loud", "-c", "name", "-c", "reason", "-f", "value").out == (
        "node-1/card-0/r0 loud\nnode-2/card-0/r0 loud\n"
    )
    assert run("card", "resume", *CARDS, "-c", "user_list", "-f", "json").json == 2 * [{"user_list": []}]


def test_one_is_shown_as_an_object_and_its_error_is_not_counted(run):
    assert "| Field " in run("slot", "drain", SLOTS[0]).out
    assert run("slot", "resume", "node-9").err.startswith("fpga-pool: no slot 'node-9'")


def test_a_format_for_one_object_is_refused_for_several_before_anything_is_done(run):
    assert 'state="DRAINED"' in run("slot", "drain", SLOTS[0], "-f", "shell").out
    answer = run("slot", "resume", *SLOTS, "-f", "shell")
    assert (answer.status, answer.err) == (2, "fpga-pool: -f shell: expected one SLOT\n")
    assert run("slot", "show", SLOTS[0], "-f", "json").json["state"] == "DRAINED"


def test_several_cards_are_removed_until_the_command_is_interrupted(run, monkeypatch):
    kept = run("card", "remove", *CARDS, "--timeout", "0.001", "-f", "json")
    assert (kept.status, kept.json) == (1, [])
    assert kept.err.endswith("fpga-pool: 2 of 2 failed\n")
    assert run("card", "resume", *CARDS).status == 0

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    answer = run("card", "remove", *CARDS)
    says = f"fpga-pool: interrupted: card {CARDS[0]} stays drained until `card resume`\n"
    assert (answer.status, answer.err) == (130, says)


def test_several_designs_are_decided_on(run, tmp_path):
    (tmp_path / "one.bin").write_bytes(b"a partial bitstream")
    fields = 'board = "kintex7"\nkind = "small"\nio_bps = 1e9\nb_s_per_byte = 1e-9\nsimulates = "sha256"\n'
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\n{fields}')
        assert run("design", "create", tmp_path / f"{name}.toml", tmp_path / "one.bin").status == 0
    for command, state in (("reject", "REJECTED"), ("approve", "APPROVED"), ("revoke", "REVOKED")):
        answer = run("design", command, "one", UNKNOWN, "two", "--reason", "a review", "-f", "json")
        assert (answer.status, answer.err) == (1, f"fpga-pool: no design {UNKNOWN}\nfpga-pool: 1 of 3 failed\n")
        assert [(row["name"], row["state"], row["reason"]) for row in answer.json] == [
            ("one", state, "a review"), ("two", state, "a review"),
        ]  # fmt: skip
