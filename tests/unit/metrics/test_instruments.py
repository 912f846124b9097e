import pytest

from fpga_pool.metrics import table
from fpga_pool.metrics.instruments import DIRECTORY, Instruments, Sample, check_directory
from fpga_pool.model.exceptions import InvalidInput
from support.scraping import values_of


def test_events_are_counted_and_observed():
    instruments = Instruments()
    instruments.count(table.API_ERRORS, "fpga_pool.not_found")
    instruments.count(table.API_ERRORS, "fpga_pool.not_found")
    instruments.observe(table.JOB_WAIT, 2.0, "p")
    instruments.observe(table.JOB_WAIT, 3.0, "p")
    instruments.observe(table.LOAD_TIME, 0.3, "aes")
    found = values_of(instruments)
    assert found["fpga_pool_api_errors_total", "fpga_pool.not_found"] == 2
    assert found["fpga_pool_job_wait_seconds_sum", "p"] == 5
    assert found["fpga_pool_job_wait_seconds_count", "p"] == 2
    assert found["fpga_pool_agent_load_seconds_bucket", "aes", "0.25"] == 0
    assert found["fpga_pool_agent_load_seconds_bucket", "aes", "0.5"] == 1


def test_values_of_several_readers_are_added_up_and_the_largest_age_is_taken():
    instruments = Instruments()
    for received, age_s in ((10, 1.0), (20, 5.0), (30, 3.0)):  # three agents in one process
        samples = [Sample(table.RECEIVED, received), Sample(table.AGENT_HEARTBEAT_AGE, age_s)]
        instruments.read(lambda samples=samples: samples)
    found = values_of(instruments)
    assert found["fpga_pool_agent_received_bytes_total",] == 60
    assert found["fpga_pool_agent_heartbeat_age_seconds",] == 5


def test_values_beyond_the_limit_of_a_label_are_added_up():
    instruments = Instruments(max_projects=2)
    instruments.read(lambda: [Sample(table.JOBS, 1, (f"project-{number}", "PENDING")) for number in range(5)])
    found = values_of(instruments)
    values = {name: value for name, value in found.items() if name[0] == "fpga_pool_jobs"}
    assert sorted(values.values()) == [1, 1, 3]
    assert found["fpga_pool_jobs", "other", "PENDING"] == 3
    instruments.observe(table.JOB_WAIT, 1.0, "project-0")  # known, so it keeps its name
    instruments.observe(table.JOB_WAIT, 1.0, "project-9")
    found = values_of(instruments)
    assert found["fpga_pool_job_wait_seconds_count", "project-0"] == 1
    assert found["fpga_pool_job_wait_seconds_count", "other"] == 1


def test_a_reader_that_fails_costs_its_own_values_only():
    def fails():
        raise ConnectionError("the database is away")

    instruments = Instruments()
    instruments.read(fails)
    instruments.read(lambda: [Sample(table.CONNECTIONS, 4)])
    assert values_of(instruments)["fpga_pool_agent_connections",] == 4
    found = values_of(instruments)
    assert found["fpga_pool_agent_connections",] == 4
    assert found["fpga_pool_scrape_errors_total",] >= 1


@pytest.mark.parametrize("directory", ["", "none"])
def test_processes_record_in_a_directory_that_there_is(directory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(DIRECTORY, directory)
    with pytest.raises(InvalidInput, match=f"{DIRECTORY}: expected a directory .*, found '{directory}'"):
        check_directory()
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    check_directory()
    monkeypatch.delenv(DIRECTORY)
    check_directory()
