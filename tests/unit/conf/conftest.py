import pytest
from oslo_config import cfg

from fpga_pool.conf.opts import register_opts


@pytest.fixture
def read_conf(tmp_path):
    """Return a function that reads options from the text of a configuration file."""

    def read(text: str = "") -> cfg.ConfigOpts:
        path = tmp_path / "fpga_pool.conf"
        path.write_text(text)
        conf = cfg.ConfigOpts()
        register_opts(conf)
        conf(["--config-file", str(path)], project="fpga_pool")
        return conf

    return read
