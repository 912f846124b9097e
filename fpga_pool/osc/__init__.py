"""The plug-in of `openstack`: `openstack fpga ...` has the commands of `fpga-pool`."""
