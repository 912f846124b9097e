"""Files for `openstack_dashboard/local/enabled` of Horizon."""
