"""The plug-in of the `openstack` command: `openstack fpga ...` provides the commands of `fpga-pool`."""
